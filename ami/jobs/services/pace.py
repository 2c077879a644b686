"""How fast a job settles its images, and how long it may still take."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

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
    numbers = {param["key"]: param["value"] for stage in stages for param in stage["params"]}
    if job.status in FINAL:
        return Pace(_over(job, numbers.get("processed", 0)))
    if "remaining" not in numbers or not job.collected_at:
        return Pace()
    recent = JobImage.objects.filter(job=job, settled_at__gt=Now() - timedelta(seconds=SECONDS)).count()
    rate = recent / SECONDS
    return Pace(rate or None, numbers["remaining"] / rate if rate else None)


def _over(job: Job, settled: int) -> float | None:
    if not (settled and job.started_at and job.finished_at):
        return None
    seconds = (job.finished_at - job.started_at).total_seconds()
    return settled / seconds if seconds > 0 else None
