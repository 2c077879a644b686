"""Settles images of a job as processed or failed, by compare-and-set; only the first settlement counts."""

from collections.abc import Iterable

from django.db import transaction
from django.utils import timezone

from ami.jobs.models import JobImage
from ami.jobs.models.states import UNSETTLED, ImageState
from ami.jobs.signals import image_settled
from ami.queues.redaction import redact_text

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


def settle_processed(job_id: int, image_id: int, *, detections: int, classifications: int) -> bool:
    """Mark an image as processed; return whether this was the first time.

    A late result also settles an image that had failed as lost. Call it in the transaction that saves the result.
    """
    settled = JobImage.objects.filter(
        job_id=job_id, source_image_id=image_id, state__in=UNSETTLED | {ImageState.FAILED}
    ).update(
        state=ImageState.PROCESSED,
        settled_at=timezone.now(),
        lease_expires_at=None,
        error="",
        detections_count=detections,
        classifications_count=classifications,
    )
    if settled:
        _send_signal(job_id, image_id, ImageState.PROCESSED)
    return bool(settled)


def settle_failed(job_id: int, image_ids: Iterable[int], error: str) -> list[int]:
    """Mark unsettled images as failed; return the keys of those that this call settled."""
    now = timezone.now()
    failed = []
    for image_id in sorted(set(image_ids)):
        row = JobImage.objects.filter(job_id=job_id, source_image_id=image_id, state__in=UNSETTLED)
        message = redact_text(error.replace("\x00", ""))[:10_000]
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
