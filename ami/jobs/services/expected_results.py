"""What the results of a job may name: its pipeline and algorithms, now or when it started, and its images."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from ami.jobs.models import Job, JobImage
from ami.ml.schemas import DetectionRequest
from ami.ml.services.wire import Names

#: Names in one reason.
MOST_NAMED = 5

NO_NAMES: dict[str, Any] = {"slugs": (), "algorithms": ()}


class Expected:
    """The slugs of a job's pipeline and the keys of its algorithms: as when it started, and as they are now.

    The names of now are read only where a result does not have those of the start.
    """

    def __init__(self, job: Job) -> None:
        started = job.cursor.get("pipeline") if isinstance(job.cursor, dict) else None
        self._job, self._started = job, started or NO_NAMES

    def refusal(self, names: Names, sent: Iterable[DetectionRequest] = ()) -> str:
        """Return why a result with these names is not the job's; empty if it is.

        ``sent`` are detections that the service was sent: it returns them with the algorithms that found them.
        """
        algorithms = names.algorithms - {each.algorithm.key for each in sent}
        if names.pipeline in self._started["slugs"] and algorithms <= set(self._started["algorithms"]):
            return ""
        slugs, keys = ({*self._started[kind], *self._now[kind]} for kind in ("slugs", "algorithms"))
        if names.pipeline not in slugs:
            return f"The result is of pipeline {names.pipeline[:255]!r}; the job runs {_listed(slugs)}."
        if strange := algorithms - keys:
            return f"The result names algorithms that the job's pipeline does not have: {_listed(strange)}."
        return ""

    @cached_property
    def _now(self) -> dict[str, Any]:
        return names_of_pipeline(self._job) or NO_NAMES


def names_of_pipeline(job: Job) -> dict[str, Any] | None:
    """Return the names of the job's pipeline in the form that the job keeps.

    ``slugs`` and ``algorithms`` contain aliases, ``steps`` are the algorithms' own keys.
    """
    if job.pipeline is None:
        return None
    steps = sorted(job.pipeline.algorithms.order_by().values_list("key", flat=True))
    return {"slugs": job.pipeline.slugs(), "algorithms": job.pipeline.algorithm_keys(), "steps": steps}


def keep_names(job: Job) -> None:
    """Keep the names of the pipeline with which the job starts: it may be registered again while the job runs.

    Raises:
        JobStopped: the job is no longer active.
    """
    if "pipeline" not in job.cursor and (names := names_of_pipeline(job)):
        job.save_progress(cursor={**job.cursor, "pipeline": names})


def images_of_job(job_id: int, keys: Iterable[str]) -> set[str]:
    """Return those of the keys that name an image of the job; a key is canonical: "007" does not name image 7."""
    numbers = sorted({pk for key in keys if (pk := canonical(key)) is not None})
    rows = JobImage.objects.filter(job_id=job_id, source_image_id__in=numbers) if numbers else JobImage.objects.none()
    return set(map(str, rows.values_list("source_image_id", flat=True)))


def canonical(key: str) -> int | None:
    """Return the primary key that a key on the wire names; None if it names none."""
    is_number = key.isascii() and key.isdecimal() and len(key) < 19 and str(int(key)) == key
    return int(key) if is_number else None


def _listed(names: Iterable[str]) -> str:
    names = sorted(names)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(repr(name[:255]) for name in names[:MOST_NAMED]) + more or "none"
