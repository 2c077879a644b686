"""The job kind `post_processing`: classifies stored detections again, a chunk at a time."""

from typing import TYPE_CHECKING, Any

from ami.environment.deferred import deferred
from ami.jobs.models import Job
from ami.jobs.services.job_kinds import SliceOfWork, job_kind

if TYPE_CHECKING:
    from ami.ml.services.post_processing import class_masking, configs, rows, small_size_filter
else:
    _folder = "ami.ml.services.post_processing"
    class_masking, configs, rows, small_size_filter = (
        deferred(f"{_folder}.{name}") for name in ("class_masking", "configs", "rows", "small_size_filter")
    )

CHUNK = 200


@job_kind("post_processing", stages=[("post_processing", "Post-processing")], is_long=True)
def post_processing(job: Job, turn: SliceOfWork) -> bool:
    """Run the task in ``params`` over its detections, in the order of their keys; a chunk may be done twice.

    Raises:
        ConfigRefused: ``params`` are wrong, or a row that they name was deleted.
    """
    config = configs.config_of(job.params, job.project_id)
    tasks = {"small_size_filter": small_size_filter, "class_masking": class_masking}
    classify: Any = tasks[job.params["task"]].classify
    detections = rows.detections_of(config, job.project_id)
    cursor: dict[str, Any] = dict(job.cursor or {})
    if "total" not in cursor:
        cursor |= {"stage": "post_processing", "after": 0, "counts": {}, "total": detections.count()}
        job.save_progress(cursor=cursor, done=0, total=cursor["total"])
        job.log(f"{job.params['task']}: {cursor['total']} detections.", config=config.model_dump(exclude_none=True))
    while keys := list(detections.filter(pk__gt=cursor["after"]).values_list("pk", flat=True)[:CHUNK]):
        counts = classify(config, keys, job.project_id, rows.Run(job.pk, job.started_at))
        total = {name: cursor["counts"].get(name, 0) + number for name, number in counts.items()}
        cursor = {**cursor, "after": keys[-1], "counts": total}
        job.save_progress(cursor=cursor, done=total["detections_checked"])
        if turn.over():
            return False
    job.result = cursor["counts"]
    job.save(update_fields=["result"])
    job.log(", ".join(f"{name.replace('_', ' ')}: {number}" for name, number in cursor["counts"].items()) or "Nothing.")
    return True
