"""Pauses and resumes queues: no task of a paused queue begins, on no worker, also after restarts."""

from collections.abc import Iterable
from datetime import datetime

from django.utils import timezone

from ami.queues import confirmations, wishes
from ami.queues.confirmations import Confirmed
from ami.queues.models import DesiredState
from ami.queues.targets import Kind, Target, queue_target
from ami.queues.wishes import Operator
from ami.topology.topology import Topology

PAUSED = DesiredState.Aspect.PAUSED


def pause(
    topology: Topology,
    queue: str,
    operator: Operator,
    *,
    why: str = "",
    until: datetime | None = None,
    seconds: float = confirmations.WAIT_SECONDS,
) -> Confirmed:
    """Pause a queue; running tasks continue. Return who has confirmed within ``seconds``; 0 does not wait.

    Raises:
        Refused: no such queue, or ``until`` is over.
    """
    target = queue_target(topology, queue)
    wishes.record(operator, "pause", target, PAUSED, 1, why=why, until=until)
    return confirmations.wait(lambda row: queue in row.queues, lambda row: queue in row.closed_queues, seconds)


def resume(
    topology: Topology,
    queue: str,
    operator: Operator,
    *,
    why: str = "",
    seconds: float = confirmations.WAIT_SECONDS,
) -> Confirmed:
    """Resume a queue. A worker that is parked stays closed, and counts as confirmed.

    Raises:
        Refused: no such queue.
    """
    target = queue_target(topology, queue)
    wishes.record(operator, "resume", target, PAUSED, 0, why=why)
    return confirmations.wait(
        lambda row: queue in row.queues, lambda row: row.is_parked or queue not in row.closed_queues, seconds
    )


def all_paused(rows: Iterable[DesiredState] | None = None) -> dict[str, DesiredState]:
    """Return the pauses that hold now, by queue; one statement, none for ``rows`` that were read."""
    now = timezone.now()
    known = DesiredState.objects.filter(kind=Kind.QUEUE, aspect=PAUSED) if rows is None else rows
    pauses = (row for row in known if row.kind == Kind.QUEUE and row.aspect == PAUSED and row.value)
    return {row.name: row for row in pauses if row.until is None or row.until > now}


def paused(queue: str) -> DesiredState | None:
    """Return the pause of a queue that holds now, or None."""
    return wishes.holds(Target(Kind.QUEUE, queue), PAUSED)
