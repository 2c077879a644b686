"""Which images a job skips: those that its pipeline has processed with its present algorithms (decision 0045)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import DispatchMode, ImageState
from ami.main.models import Classification, Detection
from ami.ml.models import Algorithm


@dataclass(frozen=True)
class Steps:
    """A pipeline's present algorithms: the keys of the detectors' rows, and of those of each other algorithm."""

    detectors: list[int]
    classifiers: list[list[int]]
    keys: frozenset[str]
    latest: Any

    @classmethod
    def of(cls, job: Job) -> "Steps | None":
        """Return the algorithms of the job's pipeline; None without one that detects.

        A shared algorithm is the same as the project's own one of its key: results move from one to the other.
        """
        algorithms = list(job.pipeline.algorithms.all()) if job.pipeline else []
        keys = frozenset(each.key for each in algorithms)
        rows: dict[str, list[int]] = {key: [] for key in keys}
        twins = Algorithm.objects.filter(Q(project=job.project_id) | Q(project=None), key__in=keys)
        for key, pk in {(each.key, each.pk) for each in (*algorithms, *twins)}:
            rows[key].append(pk)
        detectors = {each.key for each in algorithms if each.detects}
        if not detectors:
            return None
        return cls(
            [pk for key in sorted(detectors) for pk in rows[key]],
            [rows[key] for key in sorted(keys - detectors)],
            keys,
            max(each.created_at for each in algorithms),
        )


def processed(job: Job) -> Q | None:
    """Return the condition for images of `SourceImage` that the job skips; None if it processes every image.

    The pipeline's detector has looked at the image, and every box is done: each other algorithm of the pipeline has
    classified it, or one of them did in a job that ran with exactly these algorithms, so that the missing ones do not
    apply to it (a filter stopped it). No question is asked about an image that a user chose by itself.
    """
    steps = None if _is_asked_for(job) else Steps.of(job)
    if steps is None:
        return None
    on_image = Detection.objects.filter(source_image_id=OuterRef("pk")).order_by()
    looked = Q(Exists(on_image.filter(detection_algorithm_id__in=steps.detectors)))
    boxes = on_image.filter(bbox__isnull=False)
    if sends_detections(job):
        looked |= Q(Exists(boxes))
    else:
        boxes = boxes.filter(detection_algorithm_id__in=steps.detectors)
    return looked & ~Q(Exists(boxes.filter(_unfinished(job, steps))))


def sends_detections(job: Job) -> bool:
    """Whether the job sends existing boxes to its service: a push job of a project with the flag."""
    return job.dispatch_mode == DispatchMode.SYNC_API and _has_flag(job, "reprocess_existing_detections")


def _is_asked_for(job: Job) -> bool:
    """Whether a user asked for these images again: by the project's flag, or by choosing them one by one."""
    chosen = job.source_image_single_id is not None or "asked_by_task" in job.params
    return chosen or _has_flag(job, "reprocess_all_images")


def _has_flag(job: Job, name: str) -> bool:
    return bool((job.project.feature_flags or {}).get(name))


def _unfinished(job: Job, steps: Steps) -> Q:
    """Return the condition for boxes that the pipeline has not finished with."""
    missing = Q()
    for pks in steps.classifiers:
        missing |= ~Q(Exists(_classified(pks)))
    if not missing:
        return Q(pk__in=())
    classified = _classified([pk for pks in steps.classifiers for pk in pks])
    same, unrecorded = _jobs(job, steps)
    if same:
        missing &= ~Q(Exists(classified.filter(job_id__in=same)))
    if unrecorded:
        settled = JobImage.objects.filter(
            source_image_id=OuterRef("source_image_id"), job_id__in=unrecorded, state=ImageState.PROCESSED
        )
        missing &= ~(Q(Exists(classified.filter(job_id__isnull=True))) & Q(Exists(settled.order_by())))
    return missing


def _classified(pks: Collection[int]) -> QuerySet[Classification]:
    # History counts, too: another pipeline with the same classifier may have the current row.
    return Classification.objects.filter(detection_id=OuterRef("pk"), algorithm_id__in=pks).order_by()


def _jobs(job: Job, steps: Steps) -> tuple[list[int], list[int]]:
    """Return the jobs of this pipeline with these algorithms, and those older than the record of a job's algorithms.

    Such a job counts if none of the algorithms was registered after it began.
    """
    assert job.pipeline is not None
    jobs = Job.objects.filter(project=job.project_id, pipeline__slug=job.pipeline.slug).order_by("pk")
    same, unrecorded = [], []
    for pk, cursor, started_at in jobs.values_list("pk", "cursor", "started_at"):
        record = cursor.get("pipeline") if isinstance(cursor, dict) else None
        if record is None:
            if started_at is not None and started_at > steps.latest:
                unrecorded.append(pk)
        elif _keys(record) == steps.keys:
            same.append(pk)
    return same, unrecorded


def _keys(record: Any) -> Iterable[str]:
    return frozenset(record.get("steps", ())) if isinstance(record, dict) else frozenset()
