"""What becomes of each of the 23 tasks of the Antenna before the split, when its messages are adopted."""

from collections.abc import Callable
from types import MappingProxyType

from django.db.models import Model

from ami.adopt import old_results
from ami.adopt.becomes import Arguments, Becomes, Buried, CannotRun, Dropped, RunsAs
from ami.jobs.services.result_batches import HANDLE_RESULT
from ami.main.models import Deployment, Project, SourceImage, SourceImageCollection

HEARTBEAT = Dropped("a service's heartbeat; its next request is another")
RESAVE = Buried("it saves rows again by their names; use the admin's actions that recount")


def _needs(model: type[Model], parameter: str) -> Callable[[Arguments], None]:
    """Return a check that this database has the row, or one of the rows, that an argument names."""
    what = str(model._meta.verbose_name)

    def check(arguments: Arguments) -> None:
        value = arguments.get(parameter)
        keys = [key for key in (value if isinstance(value, list) else [value]) if isinstance(key, int)]
        if not old_results.has_any(model._default_manager.all(), "pk", keys):
            raise CannotRun(f"this database lacks its {what}", f"{parameter} is {str(value)[:80]}")

    return check


def _of(task: str, model: type[Model], parameter: str, *others: str) -> RunsAs:
    """Return an entry for a task about rows of ``model``; a single argument may have another name than today's."""

    def convert(arguments: Arguments) -> Arguments:
        return {parameter: next(iter(arguments.values()))} if len(arguments) == 1 and not others else arguments

    return RunsAs(task, (parameter, *others), convert, _needs(model, parameter))


BECOMES: MappingProxyType[str, Becomes] = MappingProxyType(
    {
        "ami.jobs.tasks.process_nats_pipeline_result": RunsAs(
            HANDLE_RESULT,
            ("job_id", "result_data", "reply_subject"),
            check=old_results.needs_job_and_images,
            store=old_results.store,
        ),
        "ami.ml.models.pipeline.save_results": RunsAs(
            HANDLE_RESULT,
            ("results_json", "job_id"),
            convert=old_results.from_batch,
            check=old_results.needs_job_and_images,
            store=old_results.store,
        ),
        "ami.ml.tasks.create_detection_images": _of(
            "ami.ml.tasks.create_detection_images", SourceImage, "source_image_ids"
        ),
        "ami.jobs.tasks.run_job": RunsAs("ami.jobs.tasks.run_job", ("job_id",), check=old_results.needs_job),
        "ami.jobs.tasks.jobs_health_check": RunsAs("ami.jobs.tasks.jobs_health_check"),
        "ami.ml.tasks.check_processing_services_online": RunsAs("ami.ml.tasks.check_processing_services_online"),
        "ami.jobs.tasks.update_pipeline_pull_services_seen": HEARTBEAT,
        "ami.jobs.tasks.update_async_services_seen_for_pipelines": HEARTBEAT,
        "ami.jobs.tasks.update_async_services_seen_for_project": HEARTBEAT,
        "ami.main.tasks.refresh_project_cached_counts": _of(
            "ami.main.tasks.refresh_project_calculated_fields", Project, "project_id"
        ),
        "ami.tasks.regroup_events": _of("ami.main.tasks.regroup_events", Deployment, "deployment_id"),
        "ami.tasks.update_public_urls": _of(
            "ami.main.tasks.update_public_urls", Deployment, "deployment_id", "base_url"
        ),
        "ami.tasks.calculate_storage_size": Buried("nothing here lists a whole bucket; each sync counts its station's"),
        "ami.tasks.sync_source_images": _of("ami.main.tasks.sync_source_images", Deployment, "deployment_id"),
        "ami.tasks.populate_collection": _of(
            "ami.main.tasks.populate_collection", SourceImageCollection, "collection_id"
        ),
        "ami.tasks.write_tasks": Buried("there is no export to Label Studio here"),
        "ami.tasks.save_model_instance": RESAVE,
        "ami.tasks.save_model_instances": RESAVE,
        "ami.tasks.model_task": Buried("it calls any method by its name, which no task here does"),
        "ami.tasks.model_bulk_update": Buried("its arguments were never JSON"),
        "ami.ml.tasks.process_source_images_async": Buried("its job processes its images itself: run the job again"),
        "ami.ml.tasks.remove_duplicate_classifications": Dropped("a constraint of the database allows no duplicates"),
        "ami.users.tasks.get_users_count": Dropped("it changes nothing"),
    }
)
