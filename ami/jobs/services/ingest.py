"""Handles results of pull workers in batches: delivered at least once, with effects exactly once."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from billiard.exceptions import SoftTimeLimitExceeded
from django.db import InterfaceError, OperationalError

from ami.jobs.errors import NatsUnavailable, ResultMissing
from ami.jobs.models import Job, JobImage, StoredResult
from ami.jobs.services import jetstream, job_completion, job_results, result_batches, stored_results, worker_lines
from ami.jobs.services.expected_results import Expected, canonical
from ami.jobs.services.image_errors import log_failures
from ami.jobs.services.image_settlement import settle_failed
from ami.ml.schemas import PipelineResultsError, PipelineResultsResponse, StoredTaskResult
from ami.ml.services import wire
from ami.ml.services.wire import Names

logger = logging.getLogger(__name__)

#: What is not a result's fault: the whole batch is tried again.
TRANSIENT = (OperationalError, InterfaceError, SoftTimeLimitExceeded)


class ResultRefused(ValueError):
    """A result that is neither a pipeline response nor an error; the message names the first wrong field."""


@dataclass
class Item:
    """One stored result with its reply subject."""

    reply_subject: str
    result: Any
    row: StoredResult
    images: set[int] = field(default_factory=set)
    failed_image: int | None = None

    @property
    def is_handled(self) -> bool:
        return self.row.handled_at is not None


def handle(job_id: int, result_key: str, reply_subject: str | None = None) -> None:
    """Save one stored result, as a batch of it alone; whatever is wrong with it is raised.

    Raises:
        ResultMissing: the stored body is missing.
        ResultRefused: the body is not a result.
        PipelineNotConfigured: it names a pipeline or an algorithm that is not registered.
        django.db.OperationalError: the database is unreachable or resolved a deadlock; call it again.
    """
    if (job := _job(job_id)) is None:
        logger.warning("Result %s dropped: job %s was deleted", result_key, job_id, extra={"job": job_id})
        return
    item = _item(_stored(result_key))
    item.reply_subject = reply_subject or ""
    _save(job, [item])
    _finish(job, [item])


def handle_batch(job_id: int, result_ids: Iterable[int]) -> None:
    """Save stored results together, publish their crops, acknowledge them to NATS, and finish the job if it is settled.

    The order matters: after a crash between two steps the next delivery does the rest, and nothing is acknowledged
    before it is saved (incidents 27 and 44). If the results cannot be saved together, they are saved one by one; a
    result with an error of its own gets a message of its own, which is retried or buried without the others.

    Raises:
        django.db.OperationalError: the database is unreachable or resolved a deadlock; call it again.
        kombu.exceptions.OperationalError: the broker is unreachable; call it again.
    """
    if (job := _job(job_id)) is None:
        logger.warning("Results dropped: job %s was deleted", job_id, extra={"job": job_id})
        return
    # A row that is missing was handled and purged.
    rows = StoredResult.objects.filter(job_id=job_id, pk__in=list(result_ids)).order_by("pk")
    items, bad = _items(rows)
    for wave in _without_shared_images(items):
        try:
            _save(job, wave)
        except TRANSIENT:
            raise
        except Exception as error:
            logger.info("Saving %s results one by one: %r", len(wave), error, extra={"job": job_id})
            bad += _save_one_by_one(job, wave)
    refused = {row.pk for row in bad}
    _finish(job, [item for item in items if item.row.pk not in refused])
    if bad:
        result_batches.publish_alone(bad)


def split_batch(job_id: int, result_ids: Iterable[int]) -> None:
    """Publish a message for each result of a batch that ended its process, so that the others do not end with it."""
    rows = StoredResult.objects.filter(job_id=job_id, pk__in=list(result_ids), handled_at=None)
    result_batches.publish_alone(rows.defer("body").order_by("pk"))


def _job(job_id: int) -> Job | None:
    return Job.objects.select_related("pipeline").filter(pk=job_id).first()


def _stored(key: str) -> StoredResult:
    row = StoredResult.objects.filter(key=key).first()
    if row is None:
        raise ResultMissing(f"There is no stored result {key}.")
    return row


def _items(rows: Iterable[StoredResult]) -> tuple[list[Item], list[StoredResult]]:
    """Return the parsed results, and the rows whose body is missing or refused."""
    items, bad = [], []
    for row in rows:
        try:
            items.append(_item(row))
        except (ResultMissing, ResultRefused, OSError) as error:
            logger.info("Result %s gets a message of its own: %s", row.key, error, extra={"job": row.job_id})
            bad.append(row)
    return items, bad


def _item(row: StoredResult) -> Item:
    text = stored_results.load(row)
    row.body = None
    return Item(row.reply_subject, parse_text(text), row)


def parse_text(text: bytearray) -> PipelineResultsResponse | PipelineResultsError:
    """Return the wire model of a stored result; its long lists stay text.

    Raises:
        ResultRefused: names the field and the error.
    """
    try:
        return wire.parse(text, StoredTaskResult, build=False).result
    except wire.WireError as error:
        raise ResultRefused(str(error)) from error


def _without_shared_images(items: Iterable[Item]) -> list[list[Item]]:
    """Return the results in lists that are saved one after the other; two results of one image are in two of them."""
    waves: list[list[Item]] = []
    last: dict[int, int] = {}
    for item in items:
        images = item.images = _images(item.result)
        place = max((last[image] + 1 for image in images if image in last), default=0)
        if place == len(waves):
            waves.append([])
        waves[place].append(item)
        last.update(dict.fromkeys(images, place))
    return waves


def _images(result: Any) -> set[int]:
    return set() if isinstance(result, PipelineResultsError) else job_results.images_of(result)


def _save(job: Job, items: Sequence[Item]) -> None:
    """Save the results that are not handled, and mark them handled in the same transaction.

    A result that is not of the job's pipeline fails the image of its delivery, and saves nothing.
    """
    new = [item for item in items if not item.is_handled]
    if not new:
        return
    responses = []
    expected = Expected(job)
    for item in new:
        if not isinstance(item.result, PipelineResultsError):
            if not (reason := _refusal(expected, item.result)):
                responses.append(item.result)
                continue
            item.result = PipelineResultsError(error=reason)
        item.failed_image = _image_id(job, item.result, item.reply_subject)

    def finish() -> None:
        failed = [item for item in new if isinstance(item.result, PipelineResultsError)]
        _fail(job, sorted(failed, key=lambda item: item.failed_image or 0))
        stored_results.mark_handled(item.row for item in new)

    locked = {item.failed_image for item in new if item.failed_image is not None}
    job_results.save_responses(job, responses, locked=locked, finish=finish)


def _refusal(expected: Expected, result: Any) -> str:
    """Return why a result is not the job's; empty if it is. Its images were compared when it was posted."""
    if not (result.source_images or result.detections):
        return "The result names no image."
    reason = expected.refusal(Names.of(result))
    return reason and f"Result refused: {reason}"


def _save_one_by_one(job: Job, items: Iterable[Item]) -> list[StoredResult]:
    """Save each result in a transaction of its own; return the rows of those that were not saved."""
    bad = []
    for item in items:
        try:
            _save(job, [item])
        except TRANSIENT:
            raise
        except Exception as error:
            logger.info("Result %s not saved: %r", item.row.key, error, extra={"job": job.pk})
            bad.append(item.row)
    return bad


def _finish(job: Job, items: Sequence[Item]) -> None:
    """Do what follows the commit. A redelivered result that is handled does it again."""
    job_results.publish_crops({image for item in items for image in item.images or _images(item.result)})
    _acknowledge(job, [item.reply_subject for item in items])
    if job.is_final:
        job_completion.recount(job.pk)
    elif not job_completion.complete_if_settled(job.pk):
        worker_lines.throughput(job)


def _fail(job: Job, items: Sequence[Item]) -> None:
    """Mark the images of errors as failed; without an image id one was found by the reply subject (hazard 6).

    The job's log gets a line for each reason, not for each image.
    """
    failures = []
    for item in items:
        if item.failed_image is None:
            job.log(f"Error without an image: {item.result.error}", level="ERROR", reply_subject=item.reply_subject)
            continue
        settle_failed(job.pk, [item.failed_image], item.result.error)
        failures.append((item.failed_image, item.result.error))
    log_failures(job, failures)


def _image_id(job: Job, result: PipelineResultsError, reply_subject: str) -> int | None:
    """Return the image of the job that an error names, or the one of its delivery; None if there is neither."""
    named = canonical(result.image_id or "")
    if named is not None and JobImage.objects.filter(job=job, source_image_id=named).exists():
        return named
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


def _acknowledge(job: Job, reply_subjects: Iterable[str]) -> None:
    """Acknowledge to NATS; if that fails, JetStream redelivers and ``/tasks`` acknowledges settled images."""
    given = {subject for subject in reply_subjects if subject}
    valid = sorted(each for each in given if each.isascii() and each.isprintable() and " " not in each)
    if len(valid) < len(given):
        logger.warning("Result of job %s not acknowledged: invalid reply subject", job.pk, extra={"job": job.pk})
    if not valid:
        return
    try:
        jetstream.acknowledge(valid, of_job=job.pk)
    except NatsUnavailable as error:
        logger.warning("Result of job %s not acknowledged: %s", job.pk, error, extra={"job": job.pk})
