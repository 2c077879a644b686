"""Collects a job's images as rows, in chunks with a cursor, so that a slice can end after any chunk (incident 14)."""

import random
from collections.abc import Callable

from django.db.models import BigIntegerField, F, Max, QuerySet
from django.db.models.functions import Cast, Random
from django.utils import timezone

from ami.jobs.models import Job, JobImage
from ami.jobs.services.insert_select import insert_select
from ami.jobs.services.job_kinds import SliceOfWork
from ami.main.models import SourceImage

CHUNK = 10_000

#: What a shuffled image's place is below.
POSITIONS = 2**48


def collect(job: Job, work: SliceOfWork) -> bool:
    """Create a row per image of the job; return whether all exist. Repeating a chunk changes nothing."""
    next_chunk = _chunks(job)
    while (chunk := next_chunk(int(job.cursor.get("collected_to", 0)))) is not None:
        images, last = chunk
        insert_select(JobImage, images, job_id=job.pk, source_image_id=F("pk"), position=position_of(job))
        job.save_progress(cursor={**job.cursor, "collected_to": last})
        if work.over():
            return False
    total = JobImage.objects.filter(job=job).count()
    job.save_progress(total=total)
    job.collected_at = timezone.now()
    job.save(update_fields=["collected_at"])
    job.log(f"Collected {total} images.")
    return True


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


#: The images of a chunk, and the last one's key.
Chunk = tuple[QuerySet[SourceImage], int]


def _chunks(job: Job) -> Callable[[int], Chunk | None]:
    """Return what finds the chunk of images after a primary key, ascending; None after the last."""
    images = images_of(job)
    if job.limit is None:
        return lambda after: _chunk(images, after)
    if not job.shuffle:
        first = _first(images, job.limit)
        return lambda after: _chunk(first, after)
    chosen = _sample(job, images)

    def of_sample(after: int) -> Chunk | None:
        chunk = [pk for pk in chosen if pk > after][:CHUNK]
        return (images.filter(pk__in=chunk), chunk[-1]) if chunk else None

    return of_sample


def _chunk(images: QuerySet[SourceImage], after: int) -> Chunk | None:
    left = images.filter(pk__gt=after)
    last = left.order_by("pk")[:CHUNK].aggregate(last=Max("pk"))["last"]
    return None if last is None else (left.filter(pk__lte=last), last)


def _first(images: QuerySet[SourceImage], limit: int) -> QuerySet[SourceImage]:
    """Return the images with the ``limit`` lowest keys."""
    if limit < 1:
        return images.none()
    [last] = images.order_by("pk").values_list("pk", flat=True)[limit - 1 : limit] or [None]
    return images if last is None else images.filter(pk__lte=last)


def _sample(job: Job, images: QuerySet[SourceImage]) -> list[int]:
    """Return ``job.limit`` keys by chance, ascending, the same in every slice."""
    pks = list(images.order_by("pk").values_list("pk", flat=True))
    return sorted(random.Random(job.pk).sample(pks, min(job.limit or 0, len(pks))))  # noqa: S311


def position_of(job: Job) -> F | Cast:
    """Return an image's place in the order of publishing; a row that exists keeps its own."""
    return Cast(Random() * POSITIONS, BigIntegerField()) if job.shuffle else F("pk")
