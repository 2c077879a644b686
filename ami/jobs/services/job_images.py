"""Collects a job's images as rows, in chunks with a cursor, so that a slice can end after any chunk (incident 14)."""

import random
from collections.abc import Callable
from typing import NamedTuple

from django.db.models import BigIntegerField, Count, Exists, F, Max, OuterRef, Q, QuerySet
from django.db.models.functions import Cast, Random
from django.utils import timezone

from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ImageState
from ami.jobs.services.insert_select import insert_select
from ami.jobs.services.job_kinds import SliceOfWork
from ami.jobs.services.processed_images import processed
from ami.main.models import SourceImage

CHUNK = 10_000

#: What a shuffled image's place is below.
POSITIONS = 2**48


def collect(job: Job, work: SliceOfWork) -> bool:
    """Create a row per image of the job; return whether all exist. Repeating a chunk changes nothing.

    Images that the pipeline has processed are skipped (`processed`); the cursor has their number.
    """
    skip = processed(job)
    if not job.cursor.get("collected_to") and skip is not None:
        _begin(job, skip)
    next_chunk = _chunks(job, skip)
    while (chunk := next_chunk(int(job.cursor.get("collected_to", 0)))) is not None:
        images = chunk.images if skip is None else chunk.images.exclude(skip)
        insert_select(JobImage, images, job_id=job.pk, source_image_id=F("pk"), position=position_of(job))
        seen = int(job.cursor.get("seen", 0)) + chunk.number
        job.save_progress(cursor={**job.cursor, "collected_to": chunk.last, "seen": seen})
        if work.over():
            return False
    total = JobImage.objects.filter(job=job).count()
    skipped = 0 if skip is None else max(0, int(job.cursor.get("seen", 0)) - total)
    job.save_progress(total=total, cursor={**job.cursor, "skipped": skipped})
    job.collected_at = timezone.now()
    job.save(update_fields=["collected_at"])
    job.log(f"Collected {total} images{f'; {skipped} are processed already and were skipped' if skipped else ''}.")
    return True


def _begin(job: Job, skip: Q) -> None:
    """Forget the rows of a job that starts over whose images it now skips; count those that no sample is drawn from."""
    rows = JobImage.objects.filter(job=job, state=ImageState.PENDING)
    if rows.exists():
        rows.filter(source_image__in=SourceImage.objects.filter(skip)).delete()
    if job.limit is not None and job.shuffle:
        job.save_progress(cursor={**job.cursor, "seen": images_of(job).filter(skip).count()})


def images_of(job: Job) -> QuerySet[SourceImage]:
    """Return the images that the job selects (one, a list, a capture set or a station), all of its project."""
    images = SourceImage.objects.filter(project_id=job.project_id)
    if job.source_image_single_id:
        return images.filter(pk=job.source_image_single_id)
    if "source_image_ids" in job.params:
        return images.filter(pk__in=job.params["source_image_ids"])
    if job.source_image_collection_id:
        return images.filter(collections=job.source_image_collection_id)
    if job.deployment_id:
        return images.filter(deployment_id=job.deployment_id)
    return images.none()


class Chunk(NamedTuple):
    """The images of a chunk with those that are skipped, their number, and the last one's key."""

    images: QuerySet[SourceImage]
    number: int
    last: int


def _chunks(job: Job, skip: Q | None) -> Callable[[int], Chunk | None]:
    """Return what finds the chunk of images after a primary key, ascending; None after the last.

    A limit is of images that are not skipped.
    """
    images = images_of(job)
    if job.limit is None:
        return lambda after: _chunk(images, after)
    # Those that the job has already, too: a slice chooses as the one before did.
    has_row = Exists(JobImage.objects.filter(job=job, source_image_id=OuterRef("pk")))
    wanted = images if skip is None else images.filter(~skip | Q(has_row))
    if not job.shuffle:
        first = _first(images, wanted, job.limit)
        return lambda after: _chunk(first, after)
    chosen = _sample(job, wanted)

    def of_sample(after: int) -> Chunk | None:
        chunk = [pk for pk in chosen if pk > after][:CHUNK]
        return Chunk(images.filter(pk__in=chunk), len(chunk), chunk[-1]) if chunk else None

    return of_sample


def _chunk(images: QuerySet[SourceImage], after: int) -> Chunk | None:
    left = images.filter(pk__gt=after)
    found = left.order_by("pk")[:CHUNK].aggregate(last=Max("pk"), count=Count("pk"))
    last = found["last"]
    return None if last is None else Chunk(left.filter(pk__lte=last), found["count"], last)


def _first(images: QuerySet[SourceImage], wanted: QuerySet[SourceImage], limit: int) -> QuerySet[SourceImage]:
    """Return the images up to the ``limit``-th of those that are wanted."""
    if limit < 1:
        return images.none()
    [last] = wanted.order_by("pk").values_list("pk", flat=True)[limit - 1 : limit] or [None]
    return images if last is None else images.filter(pk__lte=last)


def _sample(job: Job, images: QuerySet[SourceImage]) -> list[int]:
    """Return ``job.limit`` keys by chance, ascending, the same in every slice."""
    pks = list(images.order_by("pk").values_list("pk", flat=True))
    return sorted(random.Random(job.pk).sample(pks, min(job.limit or 0, len(pks))))  # noqa: S311


def position_of(job: Job) -> F | Cast:
    """Return an image's place in the order of publishing; a row that exists keeps its own."""
    return Cast(Random() * POSITIONS, BigIntegerField()) if job.shuffle else F("pk")
