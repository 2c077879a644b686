"""Takes the results that a pull worker posts: stores and publishes the job's, and refuses the others one by one."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db import transaction

from ami.jobs.models import Job
from ami.jobs.services import result_batches, stored_results
from ami.jobs.services.deliveries import deliveries_of_job
from ami.jobs.services.expected_results import Expected, images_of_job
from ami.jobs.services.image_claims import config_of_tasks
from ami.jobs.services.result_bodies import Text
from ami.ml.schemas import MAX_BATCH, TakenResult
from ami.ml.services.wire import PostedResult, WrongResult

logger = logging.getLogger(__name__)

#: Different reasons that one post writes to the job's log.
MOST_REASONS = 10
NO_DELIVERY = "The reply subject is no delivery of the job."


@dataclass(frozen=True)
class _Taken:
    """One item: the text to store, empty for an item that is not stored, and why it is refused, if it is."""

    reply_subject: str
    text: Text
    reason: str = ""


def take(job: Job, results: Sequence[PostedResult | WrongResult]) -> list[TakenResult]:
    """Store and publish results; return what became of each, in the same order.

    A refused item saves nothing. If its reply subject names a delivery of this job, the image of that is failed with
    the reason: what is stored in its place is an error with that reply subject. What names neither an image nor a
    delivery of the job makes no row.

    Raises:
        OSError: the storage failed.
    """
    answers: list[TakenResult] = []
    refused: dict[str, int] = {}
    expected = Expected(job)
    for first in range(0, len(results), MAX_BATCH):
        items = list(_checked(job, expected, results[first : first + MAX_BATCH]))
        for item in items:
            if item.reason:
                refused[item.reason] = refused.get(item.reason, 0) + 1
        answers += _store(job, items)
    for reason, count in list(refused.items())[:MOST_REASONS]:
        job.log(f"Refused {count} of {len(results)} posted results: {reason}", level="WARNING")
    return answers


def _checked(job: Job, expected: Expected, results: Sequence[PostedResult | WrongResult]) -> Iterator[_Taken]:
    own = images_of_job(job.pk, {key for item in results if isinstance(item, PostedResult) for key in item.images})
    reasons = [_reason(expected, own, item) for item in results]
    unsure = [item.reply_subject for item, why in zip(results, reasons, strict=True) if why or not _is_own(item, own)]
    delivered = deliveries_of_job(job.pk, unsure)
    config = config_of_tasks(job)
    for item, reason in zip(results, reasons, strict=True):
        is_delivery = item.reply_subject in delivered
        if not reason and not is_delivery and not _is_own(item, own):
            reason = NO_DELIVERY
        if reason or isinstance(item, WrongResult):
            yield _refused(item.reply_subject, reason, is_delivery)
            continue
        names = item.names
        if names and names.config is not None and config is not None and names.config != config:
            logger.warning("Job %s: a worker used another configuration than the project's", job.pk)
        yield _Taken(item.reply_subject, item.text)


def _reason(expected: Expected, own: set[str], item: PostedResult | WrongResult) -> str:
    """Return why an item is not a result of the job; empty if it may be one."""
    if isinstance(item, WrongResult):
        return item.reason
    if item.names and (reason := expected.refusal(item.names)):
        return reason
    return "The result names no image of the job." if item.names and item.images and not item.images & own else ""


def _is_own(item: PostedResult | WrongResult, own: set[str]) -> bool:
    """Whether an item names an image of the job."""
    return isinstance(item, PostedResult) and not item.images.isdisjoint(own)


def _refused(reply_subject: str, reason: str, is_delivery: bool) -> _Taken:
    """Return an error to be stored in the place of an item; nothing is stored where no delivery is named."""
    error = {"reply_subject": reply_subject, "result": {"error": f"Result refused: {reason}"}}
    return _Taken(reply_subject, json.dumps(error).encode() if is_delivery else b"", reason)


@transaction.atomic
def _store(job: Job, items: Sequence[_Taken]) -> list[TakenResult]:
    """Store results together with the calls that handle them."""
    kept = [item for item in items if item.text]
    pairs = [(item.reply_subject, item.text) for item in kept]
    rows = stored_results.store_many(job, pairs)
    task_ids = iter(result_batches.publish(rows))
    return [
        TakenResult(
            reply_subject=item.reply_subject,
            status="refused" if item.reason else "queued",
            task_id=next(task_ids) if item.text else "",
            reason=item.reason or None,
        )
        for item in items
    ]
