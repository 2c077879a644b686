"""Publishes stored results: one call for a batch of results of one job."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from celery import Signature
from celery.utils import uuid
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from ami.jobs.models import StoredResult
from ami.queues.publish import publish_many, signature

#: The tasks that handle one stored result, and a batch of them.
HANDLE_RESULT = "ami.jobs.tasks.process_nats_pipeline_result"
HANDLE_RESULTS = "ami.jobs.tasks.process_nats_pipeline_results"

#: Bounds of a batch: a transaction of a fraction of a second, and the memory of one process.
MOST_RESULTS = 50
MOST_BYTES = 8 * 1024**2


@dataclass(frozen=True)
class Batch:
    """Results of one job, and the call or message that handles them."""

    rows: list[StoredResult]
    message: Signature


def publish(rows: Sequence[StoredResult]) -> list[str]:
    """Stage the calls that handle stored results, in one transaction; return an id for each result, in the same order.

    The id is kept with the result, and with it the id of the call (``batch_id``). A handled result is not published
    again. A row that is there twice is published once. The rows have their job.
    """
    waiting = {row.pk: row for row in rows if row.handled_at is None}
    _publish([Batch(part, _call(part)) for part in batches(waiting.values())])
    return [row.task_id for row in rows]


def publish_alone(rows: Iterable[StoredResult]) -> None:
    """Publish a message of its own for each result, whose failure concerns no other.

    Raises:
        kombu.exceptions.OperationalError: the broker did not take every message.
    """
    _publish([Batch([row], _message(row)) for row in rows])


def batches(rows: Iterable[StoredResult]) -> Iterator[list[StoredResult]]:
    """Yield results of one job each, at most MOST_RESULTS with MOST_BYTES of text; one of unknown size is alone."""
    for _, group in groupby(sorted(rows, key=lambda row: (row.job_id, row.pk)), key=lambda row: row.job_id):
        batch: list[StoredResult] = []
        size = 0
        for row in group:
            added = MOST_BYTES if row.text_bytes is None else row.text_bytes
            if batch and (len(batch) >= MOST_RESULTS or size + added > MOST_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(row)
            size += added
        yield batch


def _call(rows: list[StoredResult]) -> Signature:
    ids, job = [row.pk for row in rows], rows[0].job
    call = signature(HANDLE_RESULTS, job_id=job.pk, result_ids=ids, project_id=job.project_id)
    return _with_id_of(rows[0], call) if len(rows) == 1 else call


def _message(row: StoredResult) -> Signature:
    message = signature(HANDLE_RESULT, job_id=row.job_id, result_key=row.key, reply_subject=row.reply_subject)
    return _with_id_of(row, message)


def _with_id_of(row: StoredResult, made: Signature) -> Signature:
    """Return it with the id that the client was told, unless that was published before."""
    return made.set(task_id=row.task_id) if row.task_id and not row.publishes else made


@transaction.atomic
def _publish(made: Sequence[Batch]) -> None:
    publish_many(batch.message for batch in made)
    _mark_published(made)


def _mark_published(made: Sequence[Batch]) -> None:
    """Record the calls of results; a result without an id gets the call's, or one of its own."""
    now = timezone.now()
    for batch in made:
        rows = StoredResult.objects.filter(pk__in=[row.pk for row in batch.rows])
        rows.update(batch_id=batch.message.id, published_at=now, publishes=F("publishes") + 1)
        for row in batch.rows:
            if not row.task_id:
                row.task_id = batch.message.id if len(batch.rows) == 1 else uuid()
                StoredResult.objects.filter(pk=row.pk).update(task_id=row.task_id)
