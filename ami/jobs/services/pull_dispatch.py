"""Publishes a pull job's images to JetStream in chunks, and marks each one after its confirmation."""

import time
from collections.abc import Collection
from itertools import starmap
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.utils import timezone

from ami.jobs.errors import JobStopped, NatsUnavailable
from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import ACTIVE, ImageState
from ami.jobs.services import jetstream
from ami.jobs.services.job_kinds import SliceOfWork
from ami.main.models.captures import public_url

CHUNK = 1000

#: So often the job's heartbeat and lease are written; its status is read before each chunk.
HEARTBEAT_SECONDS = 1.0


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
    saved_at = time.monotonic()
    while chunk := list(starmap(PendingImage, _pending(job).values_list(*COLUMNS)[:CHUNK])):
        if time.monotonic() - saved_at >= HEARTBEAT_SECONDS:
            job.save_progress()
            saved_at = time.monotonic()
        else:
            _refuse_stopped(job)
        _publish(job, chunk)
        if work.over():
            return not _pending(job).exists()
    return True


class PendingImage(NamedTuple):
    """What is read of an image: its row's key, and what its message is made of."""

    row: int
    image_id: int
    base_url: str
    path: str


#: In the order of `PendingImage`.
COLUMNS = ("pk", "source_image_id", "source_image__public_base_url", "source_image__path")


def _refuse_stopped(job: Job) -> None:
    """Raise JobStopped where ``save_progress`` would, and write nothing."""
    mine = Job.objects.filter(pk=job.pk, status__in=ACTIVE)
    if job.held_as:
        mine = mine.filter(holder=job.held_as)
    if not mine.exists():
        raise JobStopped(f"Job {job.pk} is no longer active.")


def _prepare_stream(job: Job) -> None:
    """Create the job's stream; one that exists before the first publish is a leftover of another database."""
    job.save_progress()
    if job.cursor.get("stream"):
        jetstream.create_stream(job.pk)
        return
    jetstream.recreate_stream(job.pk)
    # Stored before the first message, so that the stream is never recreated afterwards.
    job.save_progress(cursor={**job.cursor, "stream": True})


def _publish(job: Job, chunk: list[PendingImage]) -> None:
    payloads = {image.image_id: payload(image.image_id, public_url(image.base_url, image.path)) for image in chunk}
    confirmed = jetstream.publish(job.pk, payloads)
    _mark([image.row for image in chunk if image.image_id in confirmed])
    if len(confirmed) < len(chunk):
        raise NatsUnavailable(f"JetStream confirmed {len(confirmed)} of {len(chunk)} messages.")


def _mark(rows: Collection[int]) -> None:
    """Mark rows as published, unless they are claimed or settled by now."""
    # By key and not by the range of places: an audit may have reset a row of that range since it was read.
    pending = JobImage.objects.filter(pk__in=rows, state=ImageState.PENDING)
    pending.update(state=ImageState.PUBLISHED, published_at=timezone.now())


def payload(image_id: int, url: str) -> dict[str, Any]:
    """Return the message of one image: a `PipelineProcessingTask` without its reply subject."""
    pk = str(image_id)
    return {"id": pk, "image_id": pk, "image_url": url}


def _pending(job: Job) -> QuerySet[JobImage]:
    return JobImage.objects.filter(job=job, state=ImageState.PENDING).order_by("position")
