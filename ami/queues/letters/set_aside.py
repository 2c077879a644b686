"""Messages of disabled tasks and jobs: rows until those are enabled; then they go to the tail of their queue.

A row is written in the transaction that finds the wish, and locks it: enabling waits for it, and sees the row.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

from celery.utils.log import get_logger
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from kombu import Connection

from ami.celery.message_copy import confirming_channel
from ami.queues import broker_errors, dead_letters, named_leases
from ami.queues.letters import bodies, rows
from ami.queues.letters.publishing import DEFAULT_EXCHANGE, publish_again
from ami.queues.models import DesiredState, Letter
from ami.topology.topology import Topology

logger = get_logger(__name__)

REASON = "disabled"
BATCH = 50
#: One process at a time publishes; it renews the lease with each batch.
LEASE, LEASE_SECONDS = "set aside", 20.0


def is_disabled(task: str, job: str) -> bool:
    """Whether a task or a job is disabled."""
    return _of(task, job).exists()


def _of(task: str, job: str) -> "QuerySet[DesiredState]":
    return _wishes(Q(kind=DesiredState.Kind.TASK_NAME, name=task) | Q(kind=DesiredState.Kind.JOB, name=job))


def keep(task: str, job: str, message: Mapping[str, Any]) -> bool:
    """Write a message down if its task or its job is disabled; a second delivery of it writes nothing."""
    topology: Topology = settings.ANTENNA_TOPOLOGY
    with transaction.atomic():
        # An update that changes nothing: it locks the wish on PostgreSQL, and the database on SQLite.
        if not _of(task, job).update(value=F("value")):
            return False
        given = SimpleNamespace(**{**message, "delivery_info": {}, "errors": None})
        queue = _queue(topology, given)
        row = rows.row_of(queue, given)
        row.state, row.reason, row.first_reason, row.detail = Letter.State.SET_ASIDE, REASON, REASON, ""
        row.job = job
        bodies.keep(row, message["body"])
        Letter.objects.bulk_create([row], ignore_conflicts=True)
    return True


def kept() -> "QuerySet[Letter]":
    """Return what is set aside, in the order in which it was."""
    return Letter.objects.filter(state=Letter.State.SET_ASIDE).order_by("pk")


def enabled() -> "QuerySet[Letter]":
    """Return what is set aside although neither its task nor its job is disabled any more."""
    of_task = _wishes(Q(kind=DesiredState.Kind.TASK_NAME, name=OuterRef("task")))
    of_job = _wishes(Q(kind=DesiredState.Kind.JOB, name=OuterRef("job")))
    return kept().exclude(Exists(of_task)).exclude(Exists(of_job))


def publish_enabled(
    topology: Topology,
    connection: Connection,
    holder: str,
    database: Callable[[], AbstractContextManager[Any]] = nullcontext,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Publish what is enabled again, each deleted after the broker has it; return how many.

    Nothing is done while another process does it.

    Raises:
        amqp.exceptions.AMQPError: a publish was refused; that message and those after it stay set aside.
    """
    done, skipped = 0, set[int]()
    try:
        with confirming_channel(connection) as channel:
            while not is_stopped():
                with database():
                    is_held = named_leases.take(LEASE, holder, LEASE_SECONDS)
                    batch = list(enabled().exclude(pk__in=skipped)[:BATCH]) if is_held else []
                if not batch:
                    return done
                with _deleting(database) as published:
                    for row in batch:
                        if _publish(channel, topology, row):
                            published.append(row)
                        else:
                            skipped.add(row.pk)
                done += len(published)
    finally:
        with database():
            named_leases.release(LEASE, holder)
    return done


@contextmanager
def _deleting(database: Callable[[], AbstractContextManager[Any]]) -> Iterator[list[Letter]]:
    """Delete the rows that were published, also those before an error."""
    published: list[Letter] = []
    try:
        yield published
    finally:
        if published:
            with database():
                kept().filter(pk__in=[row.pk for row in published]).only("pk").delete()
            bodies.delete(row.body_name for row in published)


def _publish(channel: Any, topology: Topology, row: Letter) -> bool:
    """Publish a message; one whose body the storage has lost, or of which none can be made, stays and is named."""
    try:
        publish_again(channel, row, partial(_place, topology, row), keeps_retries=True)
    except FileNotFoundError as error:
        logger.error("Message not published, its body is lost: %s", error, extra={"letter": row.pk})
        return False
    except broker_errors.kinds():
        raise
    except Exception as error:  # It holds up no other one.
        fields = {"letter": row.pk, "task": row.task, "task_id": row.task_id}
        logger.error("Message not published: %r", error, extra=fields)
        return False
    return True


def _wishes(which: Q) -> "QuerySet[DesiredState]":
    holds = Q(until=None) | Q(until__gt=Now())
    return DesiredState.objects.filter(holds, which, aspect=DesiredState.Aspect.DISABLED, value=1)


def _queue(topology: Topology, message: Any) -> str:
    """Return the queue that a message was in; of one that is not ours any more, where its task belongs today."""
    return message.queue if message.queue in topology.queues else dead_letters.destination(topology, message)[1]


def _place(topology: Topology, row: Letter, message: Any) -> tuple[str, str]:
    if row.queue in topology.queues:
        return DEFAULT_EXCHANGE, row.queue
    return dead_letters.destination(topology, message)
