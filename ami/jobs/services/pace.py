"""How fast a job settles its images, and how long it may still take."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count
from django.db.models.functions import Now

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import FINAL

#: The pace is that of this time; of a job that is over, that of its whole run.
SECONDS = 60


@dataclass(frozen=True)
class Pace:
    """``images_per_second`` is None where nothing was settled, ``left_seconds`` where no end can be told."""

    images_per_second: float | None = None
    left_seconds: float | None = None


def pace(job: Job, stages: list[dict[str, Any]]) -> Pace:
    """Return the pace of a job with the ``stages`` of its progress; at most one statement."""
    if job.status in FINAL:
        return Pace(_over(job, _numbers(stages).get("processed", 0)))
    return running_paces([job], {job.pk: {"stages": stages}})[job.pk]


def running_paces(jobs: Iterable[Job], shown: Mapping[int, Mapping[str, Any]]) -> dict[int, Pace]:
    """Return the pace of each running job by its key, with the progress of each in ``shown``; at most one statement."""
    remaining = {
        job.pk: numbers["remaining"]
        for job in jobs
        if "remaining" in (numbers := _numbers(shown[job.pk]["stages"])) and job.collected_at
    }
    rates = _rates(remaining) if remaining else {}
    return {job.pk: _pace(rates.get(job.pk, 0.0), remaining.get(job.pk, 0)) for job in jobs}


def _pace(rate: float, remaining: int) -> Pace:
    return Pace(rate, remaining / rate) if rate else Pace()


def _rates(job_ids: Iterable[int]) -> dict[int, float]:
    recent = JobImage.objects.filter(job_id__in=list(job_ids), settled_at__gt=Now() - timedelta(seconds=SECONDS))
    counts = recent.order_by().values_list("job_id").annotate(count=Count("pk"))
    return {job_id: count / SECONDS for job_id, count in counts}


def _numbers(stages: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return {param["key"]: param["value"] for stage in stages for param in stage["params"]}


def _over(job: Job, settled: int) -> float | None:
    if not (settled and job.started_at and job.finished_at):
        return None
    seconds = (job.finished_at - job.started_at).total_seconds()
    return settled / seconds if seconds > 0 else None
