"""Whose turn it is: running pull jobs are served one after the other, so that one long job does not hold up the others.

A worker that asks for a job gets the one whose last turn is the longest ago. A turn lasts `ANTENNA_PULL_TURN_SECONDS`;
then, while another job of its pipeline waits, the job hands out nothing, so that the worker asks for a job again.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists, F, OrderBy, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ACTIVE, DispatchMode, ImageState

#: The longest without a turn first, of equals any.
IN_TURN: tuple[OrderBy | str, ...] = (F("served_at").asc(nulls_first=True), "?")
#: Two times of a turn differ by more.
SAME = timedelta(milliseconds=1)
#: A job has so many rivals among concurrent polls.
MOST_TRIES = 20


def with_images(jobs: QuerySet[Job], *states: ImageState) -> QuerySet[Job]:
    """Return the running pull jobs among these that have an image in one of these states."""
    images = JobImage.objects.filter(job=OuterRef("pk"), state__in=states)
    return jobs.filter(Exists(images), status__in=ACTIVE, dispatch_mode=DispatchMode.ASYNC_API)


def begin(candidates: Sequence[tuple[int, datetime | None]]) -> int | None:
    """Begin the turn of the first job that no other worker was given meanwhile; return its place among these.

    ``candidates`` are the keys and the last turns of jobs, as they were read. If all were given to others it is the
    first: a worker that has a job to do is not sent away.
    """
    for place, (key, served_at) in enumerate(candidates[:MOST_TRIES]):
        # SQLite compares texts: its own times have three decimals, and those that it is given six, or none.
        same = Q(served_at=None) if served_at is None else Q(served_at__lt=served_at + SAME)
        if Job.objects.filter(same, pk=key).update(served_at=Now()):
            return place
    return 0 if candidates else None


def is_over(job: Job, visible: QuerySet[Job]) -> bool:
    """Whether the job hands out nothing now, since another one of ``visible`` waits; else its turn goes on, or begins.

    One statement within a turn, and three after it. Pipelines of one slug are one, as for the workers that ask for it.
    """
    seconds = settings.ANTENNA_PULL_TURN_SECONDS
    if not seconds or job.pipeline is None:
        return False
    if job.served_at is not None:
        row = Job.objects.filter(pk=job.pk, served_at__gt=Now() - timedelta(seconds=seconds))
        if row.exists():
            return False
        longer_ago = Q(served_at=None) | Q(served_at__lt=job.served_at)
        rivals = visible.filter(longer_ago, pipeline__slug=job.pipeline.slug).exclude(pk=job.pk)
        if with_images(rivals, ImageState.PUBLISHED).exists():
            return True
    Job.objects.filter(pk=job.pk).update(served_at=Now())
    return False
