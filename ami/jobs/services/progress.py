"""Derives a job's progress for the API from its rows, or from the counts that a final job stores."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from django.db.models import Count, Q, Sum
from django.utils import timezone

from ami.jobs.errors import UnknownKind
from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import FINAL, UNSETTLED, ImageState, JobStatus
from ami.jobs.services import image_errors
from ami.jobs.services.job_kinds import Kind, kind_of

FAILURE_THRESHOLD = 0.5
"""A job fails if more than this share of its images failed, decided only when all are settled (incident 33)."""

LATEST_SECONDS = 24 * 3600
"""How long after a job's end a result may come: the age limit of its stream."""


@dataclass(frozen=True)
class ImageCounts:
    """Numbers of a job's images by state, and of its detections and classifications.

    ``errors`` are sentences with counts of why images failed; empty if the reasons were not read.
    """

    total: int = 0
    unsettled: int = 0
    failed: int = 0
    captures: int = 0
    detections: int = 0
    classifications: int = 0
    errors: Sequence[str] = ()

    @property
    def settled(self) -> int:
        """Images with a result or an error."""
        return self.total - self.unsettled

    @property
    def final_status(self) -> JobStatus:
        """The job's status once all images are settled."""
        return JobStatus.FAILURE if self.failed > FAILURE_THRESHOLD * self.total else JobStatus.SUCCESS


def count_images(job_ids: Iterable[int]) -> dict[int, ImageCounts]:
    """Return the counts of each job in one query; jobs without images are absent."""
    rows = JobImage.objects.filter(job_id__in=list(job_ids)).order_by().values("job_id")
    counts = rows.annotate(
        total=Count("pk"),
        unsettled=Count("pk", filter=Q(state__in=UNSETTLED)),
        failed=Count("pk", filter=Q(state=ImageState.FAILED)),
        captures=Count("pk", filter=Q(state=ImageState.PROCESSED)),
        detections=Sum("detections_count"),
        classifications=Sum("classifications_count"),
    )
    return {row.pop("job_id"): ImageCounts(**row) for row in counts}


def progress_of(jobs: Iterable[Job]) -> dict[int, dict[str, Any]]:
    """Return primary key -> progress JSON, with at most one query for all jobs.

    A job whose counts are stored names why images failed; of the others only the number of failed images is known.
    """
    jobs = list(jobs)
    counts = _counts(jobs)
    return {job.pk: _progress(job, counts.get(job.pk, ImageCounts())) for job in jobs}


def counts_with_errors(job_id: int) -> ImageCounts:
    """Return the counts of one job with the reasons for which images failed; those are asked only if some did."""
    return _with_errors(job_id, count_images([job_id]).get(job_id, ImageCounts()))


def _with_errors(job_id: int, counts: ImageCounts) -> ImageCounts:
    if not counts.failed or counts.errors:
        return counts
    return replace(counts, errors=tuple(image_errors.reasons_of(job_id)))


def _counts(jobs: list[Job]) -> dict[int, ImageCounts]:
    counts = {job.pk: ImageCounts(**job.image_counts) for job in jobs if job.image_counts is not None}
    live = [job.pk for job in jobs if job.pk not in counts and ((kind := _kind(job)) is None or kind.per_image)]
    return counts | (count_images(live) if live else {})


def store_counts(most: int = 20) -> int:
    """Store the counts of final jobs that have none, at most ``most`` jobs; return how many.

    A job that completes stores them itself. One that failed or was cancelled may still get results that were on the
    way, so a day has to pass.
    """
    over = Job.objects.filter(
        status__in=FINAL, image_counts__isnull=True, finished_at__lt=timezone.now() - timedelta(seconds=LATEST_SECONDS)
    )
    keys = list(over.order_by("pk").values_list("pk", flat=True)[:most])
    counts = count_images(keys)
    for key in keys:
        over.filter(pk=key).update(image_counts=asdict(_with_errors(key, counts.get(key, ImageCounts()))))
    return len(keys)


def progress(job: Job) -> dict[str, Any]:
    """Return the progress JSON of one job, in the platform's shape, with the reasons for which images failed."""
    counts = _counts([job]).get(job.pk, ImageCounts())
    return _progress(job, _with_errors(job.pk, counts))


def _kind(job: Job) -> Kind | None:
    try:
        return kind_of(job.job_type_key)
    except UnknownKind:
        return None


def _progress(job: Job, counts: ImageCounts) -> dict[str, Any]:
    kind = _kind(job)
    stages = _image_stages(job, counts) if kind and kind.per_image else _plain_stages(job, kind)
    mean = sum(stage["progress"] for stage in stages) / len(stages) if stages else 0.0
    errors = [str(job.params["error"])] if isinstance(job.params, dict) and job.params.get("error") else []
    if counts.failed:
        errors += counts.errors or [f"{image_errors.count_only(counts.failed)}."]
    return {
        "summary": {"status": job.status, "progress": round(mean, 4)},
        "errors": errors,
        "logs": [],
        "stages": stages,
    }


def _plain_stages(job: Job, kind: Kind | None) -> list[dict[str, Any]]:
    table = kind.stages if kind else ()
    keys = [stage.key for stage in table]
    current = job.cursor.get("stage") if isinstance(job.cursor, dict) else None
    at = keys.index(current) if current in keys else 0
    share = min(1.0, job.done / job.total) if job.total else 0.0
    finished = job.status == JobStatus.SUCCESS
    stages = []
    for index, stage in enumerate(table):
        value = 1.0 if finished or index < at else share if index == at else 0.0
        params = [_param("done", job.done), _param("total", job.total)] if index == at else []
        stages.append(_stage(stage.key, stage.name, job, value, params))
    return stages


def _image_stages(job: Job, counts: ImageCounts) -> list[dict[str, Any]]:
    total = counts.total
    collected = 1.0 if job.collected_at else 0.0
    share = (counts.settled / total if total else 1.0) if job.collected_at else 0.0
    final_status = counts.final_status if share >= 1.0 else None
    collect = [{"name": "Total Images", "key": "total_images", "category": "default", "value": total}]
    collect.append(_param("skipped", int(job.cursor.get("skipped", 0)) if isinstance(job.cursor, dict) else 0))
    process = [
        _param("processed", counts.settled),
        _param("remaining", counts.unsettled),
        _param("failed", counts.failed),
    ]
    results = [
        _param("captures", counts.captures),
        _param("detections", counts.detections),
        _param("classifications", counts.classifications),
    ]
    stages = [
        _stage("collect", "Collect", job, collected, collect),
        _stage("process", "Process", job, share, process, final_status),
        _stage("results", "Results", job, share, results, final_status),
    ]
    if job.delay:
        stages.insert(0, _stage("delay", "Delay", job, 1.0 if job.collected_at or counts.total else 0.0, []))
    return stages


def _param(key: str, value: int) -> dict[str, Any]:
    return {"name": key.capitalize(), "key": key, "category": "default", "value": value}


def _stage(
    key: str, name: str, job: Job, share: float, params: list[dict[str, Any]], final_status: JobStatus | None = None
) -> dict[str, Any]:
    """Return one stage; its status is derived from its progress."""
    if share >= 1.0:
        status = final_status or JobStatus.SUCCESS
    elif job.status in FINAL or job.status == JobStatus.CANCELING:
        status = JobStatus(job.status) if job.status != JobStatus.SUCCESS else JobStatus.STARTED
    else:
        status = JobStatus.STARTED if share > 0 else JobStatus.CREATED
    return {"key": key, "name": name, "status": str(status), "progress": round(share, 4), "params": params}
