"""Handles one result of a pull worker: delivered at least once, with effects exactly once."""

import logging
from typing import Any

from django.db import transaction
from pydantic import TypeAdapter, ValidationError

from ami.jobs.errors import NatsUnavailable, ResultMissing
from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.services import jetstream, job_completion, stored_results
from ami.jobs.services.image_settlement import settle_failed
from ami.jobs.services.job_results import save_results
from ami.ml.schemas import PipelineResultsError, PipelineResultsResponse, StoredTaskResult, TaskResult
from ami.ml.services import wire

logger = logging.getLogger(__name__)

_parser: TypeAdapter[PipelineResultsResponse | PipelineResultsError] = TypeAdapter(TaskResult)


class ResultRefused(ValueError):
    """A result that is neither a pipeline response nor an error; the message names the first wrong field."""


def handle(
    job_id: int,
    *,
    result_key: str | None = None,
    reply_subject: str | None = None,
    result_data: dict[str, Any] | None = None,
) -> None:
    """Save a result, publish its crops, mark it handled, acknowledge it to NATS, and finish the job if it was the last.

    The order matters: after a crash between two steps the next delivery does the rest, and nothing is acknowledged
    before it is saved (incidents 27 and 44).

    Raises:
        ResultMissing: the stored body is missing.
        ResultRefused: the body is not a result.
        PipelineNotConfigured: it names a pipeline or an algorithm that is not registered.
        django.db.OperationalError: the database is unreachable or resolved a deadlock; call it again.
    """
    job = Job.objects.select_related("pipeline").filter(pk=job_id).first()
    if job is None:
        logger.warning("Result %s dropped: job %s was deleted", result_key, job_id, extra={"job": job_id})
        return
    stored = _stored(result_key)
    if stored is None or stored.handled_at is None:
        result = parse_text(stored_results.load(stored)) if stored else parse(result_data)
        _apply(job, result, reply_subject or "")
        if stored is not None:
            stored_results.mark_handled(stored)
    _acknowledge(job, reply_subject)
    job_completion.complete_if_settled(job_id)


def parse(data: Any) -> PipelineResultsResponse | PipelineResultsError:
    """Return the wire model of a result.

    Raises:
        ResultRefused: names the field and the error.
    """
    try:
        return _parser.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise ResultRefused(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def parse_text(text: bytearray) -> PipelineResultsResponse | PipelineResultsError:
    """Return the wire model of a stored result; its long lists stay text.

    Raises:
        ResultRefused: names the field and the error.
    """
    try:
        return wire.parse(text, StoredTaskResult, build=False).result
    except wire.WireError as error:
        raise ResultRefused(str(error)) from error


def _stored(key: str | None) -> StoredResult | None:
    if key is None:
        return None
    row = StoredResult.objects.filter(key=key).first()
    if row is None:
        raise ResultMissing(f"There is no stored result {key}.")
    return row


def _apply(job: Job, result: PipelineResultsResponse | PipelineResultsError, reply_subject: str) -> None:
    if isinstance(result, PipelineResultsError):
        _fail(job, result, reply_subject)
        return
    if not result.source_images and not result.detections:
        _fail(job, PipelineResultsError(error="The result names no image."), reply_subject)
        return
    save_results(job, result)


@transaction.atomic
def _fail(job: Job, result: PipelineResultsError, reply_subject: str) -> None:
    """Mark the image of an error as failed; without an image id it is found by the reply subject (hazard 6)."""
    image_id = _image_id(job, result, reply_subject)
    if image_id is None:
        job.log(f"Error without an image: {result.error}", level="ERROR", reply_subject=reply_subject)
        return
    settle_failed(job.pk, [image_id], result.error)
    job.log(f"Image {image_id} failed: {result.error}", level="ERROR", source_image_id=image_id)


def _image_id(job: Job, result: PipelineResultsError, reply_subject: str) -> int | None:
    if result.image_id is not None and result.image_id.isascii() and result.image_id.isdecimal():
        return int(result.image_id) if len(result.image_id) < 19 else None
    if not reply_subject:
        return None
    claimed = JobImage.objects.filter(job=job, reply_subject=reply_subject)
    known = claimed.values_list("source_image_id", flat=True).first()
    if known is not None:
        return known
    try:
        return jetstream.image_of_reply(job.pk, reply_subject)
    except NatsUnavailable:
        return None


def _acknowledge(job: Job, reply_subject: str | None) -> None:
    """Acknowledge to NATS; if that fails, JetStream redelivers and ``/tasks`` acknowledges settled images."""
    if not reply_subject:
        return
    if not (reply_subject.isascii() and reply_subject.isprintable() and " " not in reply_subject):
        logger.warning("Result of job %s not acknowledged: invalid reply subject", job.pk, extra={"job": job.pk})
        return
    try:
        jetstream.acknowledge([reply_subject], of_job=job.pk)
    except NatsUnavailable as error:
        logger.warning("Result of job %s not acknowledged: %s", job.pk, error, extra={"job": job.pk})
