"""A message of each of the old application's 23 tasks, as its publishers wrote it, and what becomes of it."""

import json
from typing import Any

from tests.support.product.job_setup import World

#: Arguments by position and by name.
Args = tuple[list[Any], dict[str, Any]]

J, M, T = "ami.jobs.tasks", "ami.main.tasks", "ami.tasks"
RUNS = {
    f"{J}.process_nats_pipeline_result": (f"{J}.process_nats_pipeline_result", "antenna-ingest"),
    "ami.ml.models.pipeline.save_results": (f"{J}.process_nats_pipeline_result", "antenna-ingest"),
    "ami.ml.tasks.create_detection_images": ("ami.ml.tasks.create_detection_images", "antenna-ingest"),
    f"{J}.run_job": (f"{J}.run_job", "antenna-interactive"),
    f"{J}.jobs_health_check": (f"{J}.jobs_health_check", "antenna-housekeeping"),
    "ami.ml.tasks.check_processing_services_online": (
        "ami.ml.tasks.check_processing_services_online",
        "antenna-housekeeping",
    ),
    f"{M}.refresh_project_cached_counts": (f"{M}.refresh_project_calculated_fields", "antenna-ingest"),
    f"{T}.regroup_events": (f"{M}.regroup_events", "antenna-housekeeping"),
    f"{T}.update_public_urls": (f"{M}.update_public_urls", "antenna-housekeeping"),
    f"{T}.sync_source_images": (f"{M}.sync_source_images", "antenna-housekeeping"),
    f"{T}.populate_collection": (f"{M}.populate_collection", "antenna-interactive"),
}
DROPPED = (
    f"{J}.update_pipeline_pull_services_seen",
    f"{J}.update_async_services_seen_for_pipelines",
    f"{J}.update_async_services_seen_for_project",
    "ami.ml.tasks.remove_duplicate_classifications",
    "ami.users.tasks.get_users_count",
)
BURIED = (
    f"{T}.calculate_storage_size",
    f"{T}.write_tasks",
    f"{T}.save_model_instance",
    f"{T}.save_model_instances",
    f"{T}.model_task",
    f"{T}.model_bulk_update",
    "ami.ml.tasks.process_source_images_async",
)


def arguments(world: World, job_id: int, capture: Any, collection_id: int) -> dict[str, Args]:
    """Return the arguments of the tasks that run, by position or by name as the old publishers give them."""
    station, result = world.station.pk, world.found(capture)
    return {
        f"{J}.process_nats_pipeline_result": ([], {"job_id": job_id, "result_data": result, "reply_subject": "r"}),
        "ami.ml.models.pipeline.save_results": ([], {"results_json": json.dumps(result), "job_id": job_id}),
        "ami.ml.tasks.create_detection_images": ([], {"source_image_ids": [capture.pk]}),
        f"{J}.run_job": ([], {"job_id": job_id}),
        f"{J}.jobs_health_check": ([], {}),
        "ami.ml.tasks.check_processing_services_online": ([], {}),
        f"{M}.refresh_project_cached_counts": ([world.project.pk], {}),
        f"{T}.regroup_events": ([station], {}),
        f"{T}.update_public_urls": ([], {"deployment_id": station, "base_url": "https://example.org"}),
        f"{T}.sync_source_images": ([station], {}),
        f"{T}.populate_collection": ([collection_id], {}),
    }
