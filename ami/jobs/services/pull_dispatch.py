"""Publishes a pull job's images to JetStream in chunks, and marks each one after its confirmation."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from ami.jobs.errors import NatsUnavailable
from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ImageState
from ami.jobs.services import jetstream
from ami.jobs.services.job_kinds import SliceOfWork

CHUNK = 200


def dispatch(job: Job, work: SliceOfWork) -> bool:
    """Publish the pending images; return whether none is left.

    The job's status is checked before each step, so a cancelled job gets no stream and no message (incident 42).

    Raises:
        NatsUnavailable: try again later; confirmed images are marked, the others are published again (hazard 11).
        JobStopped: the job is no longer active.
    """
    if not _pending(job).exists():
        return True
    _prepare_stream(job)
    while chunk := list(_pending(job).select_related("source_image")[:CHUNK]):
        job.save_progress()
        _publish(job, chunk)
        if work.over():
            return not _pending(job).exists()
    return True


def _prepare_stream(job: Job) -> None:
    """Create the job's stream; one that exists before the first publish is a leftover of another database."""
    job.save_progress()
    if job.cursor.get("stream"):
        jetstream.create_stream(job.pk)
        return
    jetstream.recreate_stream(job.pk)
    # Stored before the first message, so that the stream is never recreated afterwards.
    job.save_progress(cursor={**job.cursor, "stream": True})


def _publish(job: Job, chunk: list[JobImage]) -> None:
    payloads = {row.source_image_id: payload(row) for row in chunk}
    confirmed = jetstream.publish(job.pk, payloads)
    JobImage.objects.filter(job=job, source_image_id__in=confirmed, state=ImageState.PENDING).update(
        state=ImageState.PUBLISHED, published_at=timezone.now()
    )
    if len(confirmed) < len(chunk):
        raise NatsUnavailable(f"JetStream confirmed {len(confirmed)} of {len(chunk)} messages.")


def payload(row: JobImage) -> dict[str, Any]:
    """Return the message of one image: a `PipelineProcessingTask` without its reply subject."""
    pk = str(row.source_image_id)
    return {"id": pk, "image_id": pk, "image_url": row.source_image.public_url()}


def _pending(job: Job) -> QuerySet[JobImage]:
    return JobImage.objects.filter(job=job, state=ImageState.PENDING).order_by("position")
