"""Settles images of a job as processed or failed, by compare-and-set; only the first settlement counts."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from ami.celery import storable
from ami.jobs.models import JobImage
from ami.jobs.models.states import UNSETTLED, ImageState
from ami.jobs.signals import image_settled
from ami.main.services.compiled_query import CompiledQuery
from ami.main.services.determinations import Capture
from ami.queues.redaction import redact_text

MOST_ROWS = 200
"""Most images in one statement."""

PROCESSED = """
WITH saved (source_image_id, detections, classifications) AS (VALUES {rows})
UPDATE {table}
SET state = %s, settled_at = %s, lease_expires_at = NULL, error = '',
    detections_count = saved.detections, classifications_count = saved.classifications
FROM saved
WHERE {table}.job_id = %s AND {table}.source_image_id = saved.source_image_id AND {table}.state IN ({states})
RETURNING {table}.source_image_id
"""

RESET = {
    "state": ImageState.PENDING,
    "attempts": 0,
    "reply_subject": "",
    "lease_expires_at": None,
    "claimed_by": "",
    "extensions": 0,
    "published_at": None,
    "settled_at": None,
    "error": "",
}


def settle_processed(job_id: int, counts: Mapping[int, tuple[int, int]]) -> list[int]:
    """Mark images as processed with their numbers of detections and classifications; return those settled just now.

    A late result also settles an image that had failed as lost. Call it in the transaction that saves the results,
    after `lock_images`.
    """
    now = timezone.now()
    settled: list[int] = []
    keys = sorted(counts)
    for first in range(0, len(keys), MOST_ROWS):
        settled += _update_processed(job_id, [(key, *counts[key]) for key in keys[first : first + MOST_ROWS]], now)
    for image_id in settled:
        _send_signal(job_id, image_id, ImageState.PROCESSED)
    return settled


def _update_processed(job_id: int, rows: list[tuple[int, int, int]], now: datetime) -> list[int]:
    """Update the rows by one statement, for which the ORM would need a ``CASE`` with a branch for each row."""
    states = sorted({str(state) for state in (*UNSETTLED, ImageState.FAILED)})
    statement = PROCESSED.format(
        table=connection.ops.quote_name(JobImage._meta.db_table),
        rows=", ".join(["(%s, %s, %s)"] * len(rows)),
        states=", ".join(["%s"] * len(states)),
    )
    moment = connection.ops.adapt_datetimefield_value(now)
    arguments = [*chain.from_iterable(rows), str(ImageState.PROCESSED), moment, job_id, *states]
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return sorted(image_id for (image_id,) in cursor.fetchall())


def images_for_saving(job_id: int, image_ids: Iterable[int]) -> dict[int, Capture]:
    """Return those of the images that the job has, by key, and lock their rows as `lock_images` does."""
    return {row[0]: Capture(*row) for row in _images.rows(job_id, sorted(image_ids))}


@CompiledQuery
def _images(job_id: int, image_ids: list[int]) -> QuerySet[JobImage, Any]:
    rows = JobImage.objects.filter(job_id=job_id, source_image_id__in=image_ids).order_by("source_image_id")
    if connection.features.has_select_for_update:
        rows = rows.select_for_update(of=("self",), no_key=True)
    columns = ("timestamp", "project_id", "deployment_id", "event_id", "deployment__time_zone")
    return rows.values_list("source_image_id", *(f"source_image__{column}" for column in columns))


def lock_images(job_id: int, image_ids: Iterable[int]) -> None:
    """Lock the rows of these images in the order of their keys; SQLite, which locks no rows, does nothing.

    It comes first in a transaction that settles several of them, so that two such transactions do not deadlock.
    """
    if (keys := list(image_ids)) and connection.features.has_select_for_update:
        rows = JobImage.objects.filter(job_id=job_id, source_image_id__in=keys).order_by("source_image_id")
        list(rows.select_for_update(no_key=True).values_list("pk"))


def settle_failed(job_id: int, image_ids: Iterable[int], error: str) -> list[int]:
    """Mark unsettled images as failed; return the keys of those that this call settled."""
    now = timezone.now()
    failed = []
    for image_id in sorted(set(image_ids)):
        row = JobImage.objects.filter(job_id=job_id, source_image_id=image_id, state__in=UNSETTLED)
        message = redact_text(storable.text(error.replace("\x00", ""), None))[:10_000]
        if row.update(state=ImageState.FAILED, settled_at=now, lease_expires_at=None, error=message):
            failed.append(image_id)
            _send_signal(job_id, image_id, ImageState.FAILED)
    return failed


def reset_images(job_id: int, *, everything: bool) -> int:
    """Make images pending for another run: all of them, or those that were not processed. Return how many."""
    images = JobImage.objects.filter(job_id=job_id)
    if everything:
        return images.update(**RESET, detections_count=0, classifications_count=0)
    return images.exclude(state=ImageState.PROCESSED).update(**RESET)


def _send_signal(job_id: int, image_id: int, state: ImageState) -> None:
    transaction.on_commit(
        lambda: image_settled.send(sender=JobImage, job_id=job_id, source_image_id=image_id, state=str(state)),
        robust=True,
    )
