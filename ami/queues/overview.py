"""What an operator sees of queues, workers and the audit log."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models.functions import Now
from kombu import Connection

from ami.admission import waiting_calls
from ami.celery.shown_time import shown_time
from ami.queues import governors, pauses
from ami.queues.confirmations import STALE
from ami.queues.models import AuditEntry, Worker
from ami.queues.queue import queue_states
from ami.queues.rescue.verdict import Verdict
from ami.topology.topology import Topology

#: What a worker's row is shown with as it is.
SAME = ("node", "service", "host", "concurrency", "pid", "running", "repairs", "version", "unaccounted")


@dataclass(frozen=True)
class QueueRow:
    """One queue; ``paused`` is a sentence with who, why and until, empty while it is not paused.

    With ``is_held`` all its workers live and take no tasks, whatever the broker says of their consumers.
    ``waiting`` are messages and the ``staged`` calls of tasks with a policy, which wait as rows and are due.
    """

    queue: str
    service: str
    waiting: int | None
    consumers: int | None
    running: int
    paused: str
    workers: tuple[str, ...]
    staged: int = 0
    is_held: bool = False


@dataclass(frozen=True)
class WorkerRow:
    """One worker; ``state`` is running, parked, disconnected, stale, or what the rescue found (dead, wedged, ...)."""

    node: str
    service: str
    host: str
    state: str
    why: str
    beat_seconds: float
    queues: tuple[str, ...]
    closed_queues: tuple[str, ...]
    concurrency: int
    pid: int
    running: list[dict[str, Any]]
    repairs: dict[str, int]
    version: str
    unaccounted: int


def queues(topology: Topology, connection: Connection) -> list[QueueRow]:
    """Return every consumed queue, in the order of the table."""
    rows, calls = list(Worker.objects.order_by("node")), waiting_calls.by_queue()
    staged = {state: found.due for state, found in calls.items()}
    held = _held(rows)
    return [
        QueueRow(
            queue=state.queue,
            service=state.service,
            waiting=None if state.messages is None else state.messages + staged.get(state.queue, 0),
            consumers=state.consumers,
            running=sum(len(row.running) for row in rows if state.queue in row.queues),
            paused=_sentence(state.queue),
            workers=tuple(row.node for row in rows if state.queue in row.queues),
            staged=staged.get(state.queue, 0),
            is_held=state.queue in held,
        )
        for state in queue_states(topology, connection)
    ]


def _held(rows: Iterable[Worker]) -> set[str]:
    living = (row for row in rows if row.verdict != Verdict.DEAD)
    told = [governors.Worker(row.node, tuple(row.queues), True, row.governor or None) for row in living]
    return set(governors.held_queues(told))


def workers(*, only_dead: bool = False) -> list[WorkerRow]:
    """Return every worker that has not ended in order; or the dead ones alone."""
    rows = Worker.objects.order_by("node").annotate(now=Now())
    found = [worker_row(row, row.now) for row in rows]
    return [row for row in found if row.state == "dead"] if only_dead else found


def audit(limit: int) -> list[dict[str, Any]]:
    """Return the latest entries of the audit log, newest first."""
    names = ("at", "who", "verb", "target", "before", "after", "why", "source", "outcome")
    return [row | {"at": row["at"].isoformat()} for row in AuditEntry.objects.values(*names)[:limit]]


def worker_row(row: Any, now: datetime) -> WorkerRow:
    """Return what is shown of a worker's row at the database's time ``now``."""
    age = now - row.seen_at
    state, why = "running", ""
    if row.verdict:
        state = row.verdict
        why = f"since {shown_time(row.flagged_at)}" if row.flagged_at else ""
    elif age > STALE:
        state = "stale"
    elif not row.is_connected:
        state = "disconnected"
    elif row.is_parked:
        state = "parked"
    return WorkerRow(
        **{name: getattr(row, name) for name in SAME},
        state=state,
        why=why,
        beat_seconds=round(age.total_seconds(), 1),
        queues=tuple(row.queues),
        closed_queues=tuple(row.closed_queues),
    )


def _sentence(queue: str) -> str:
    wish = pauses.paused(queue)
    if wish is None:
        return ""
    until = f" until {shown_time(wish.until)}" if wish.until else ""
    return f"by {wish.by}{until}{f': {wish.why}' if wish.why else ''}"
