"""Collects a job's images as rows, in chunks with a cursor, so that a slice can end after any chunk (incident 14)."""

import random
from collections.abc import Iterator

from django.db.models import QuerySet
from django.utils import timezone

from ami.jobs.models import Job, JobImage
from ami.jobs.services.job_kinds import SliceOfWork
from ami.main.models import SourceImage

CHUNK = 1000


def collect(job: Job, work: SliceOfWork) -> bool:
    """Create a row per image of the job; return whether all exist. Repeating a chunk changes nothing."""
    after = int(job.cursor.get("collected_to", 0))
    for chunk in _chunks(job, after):
        rows = [JobImage(job=job, source_image_id=pk, position=_position(job, pk)) for pk in chunk]
        JobImage.objects.bulk_create(rows, ignore_conflicts=True)
        job.save_progress(cursor={**job.cursor, "collected_to": chunk[-1]})
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


def _chunks(job: Job, after: int) -> Iterator[list[int]]:
    """Yield ascending chunks of primary keys greater than ``after``."""
    images = images_of(job).order_by("pk")
    if job.limit is not None:
        chosen = _limited(job, images)
        left = [pk for pk in chosen if pk > after]
        yield from (left[start : start + CHUNK] for start in range(0, len(left), CHUNK))
        return
    while chunk := list(images.filter(pk__gt=after).values_list("pk", flat=True)[:CHUNK]):
        yield chunk
        after = chunk[-1]


def _limited(job: Job, images: QuerySet[SourceImage]) -> list[int]:
    """Return at most ``job.limit`` keys, ascending, the same in every slice."""
    limit = job.limit or 0
    if not job.shuffle:
        return list(images.values_list("pk", flat=True)[:limit])
    pks = list(images.values_list("pk", flat=True))
    return sorted(random.Random(job.pk).sample(pks, min(limit, len(pks))))  # noqa: S311


def _position(job: Job, pk: int) -> int:
    """Return an image's place in the order of publishing, the same in every slice even if shuffled."""
    return random.Random(f"{job.pk}:{pk}").getrandbits(48) if job.shuffle else pk  # noqa: S311
