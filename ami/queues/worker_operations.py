"""Parks, stops, scales and restarts workers, by node, host or service; a worker that restarts follows the wish, too."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime

from django.db.models.functions import Now

from ami.governor.container_capacity import children_held
from ami.queues import confirmations, overview, wishes
from ami.queues.confirmations import Confirmed
from ami.queues.models import DesiredState, Worker
from ami.queues.overview import WorkerRow
from ami.queues.refusals import Refused
from ami.queues.targets import Target, worker_target, workers_of
from ami.queues.wishes import Operator
from ami.topology.topology import Topology
from ami.topology.workload import Workload

Aspect = DesiredState.Aspect
#: The states of workers on which no task can begin.
TAKES_NONE = ("parked", "dead", "wedged", "cut off")


def park(
    topology: Topology,
    name: str,
    operator: Operator,
    *,
    why: str = "",
    until: datetime | None = None,
    seconds: float = confirmations.WAIT_SECONDS,
) -> Confirmed:
    """Let workers finish what runs and take nothing more.

    Raises:
        Refused: no such worker, or ``until`` is over. So do the other operations.
    """
    target = worker_target(topology, name)
    wishes.record(operator, "park", target, Aspect.PARKED, 1, why=why, until=until)
    return replace(confirmations.wait(_reached(target), _is_closed, seconds), left=_left(target))


def stop(
    topology: Topology,
    name: str,
    operator: Operator,
    *,
    why: str = "",
    until: datetime | None = None,
    seconds: float = confirmations.WAIT_SECONDS,
) -> Confirmed:
    """Park workers and end what they run: SIGTERM, SIGKILL after ten seconds.

    Messages that are acknowledged late return to their queue, flagged as redelivered.
    """
    target = worker_target(topology, name)
    wishes.record(operator, "stop", target, Aspect.STOPPED, 1, why=why, until=until)
    found = confirmations.wait(_reached(target), lambda row: _is_closed(row) and not row.running, seconds)
    return replace(found, left=_left(target))


def unpark(
    topology: Topology, name: str, operator: Operator, *, why: str = "", seconds: float = confirmations.WAIT_SECONDS
) -> Confirmed:
    """Let parked or stopped workers take tasks again; a queue that is paused stays paused."""
    target = worker_target(topology, name)
    wishes.record(operator, "unpark", target, Aspect.PARKED, 0, why=why)
    return confirmations.wait(_reached(target), lambda row: not row.is_parked, seconds)


def scale(
    topology: Topology,
    name: str,
    count: int,
    operator: Operator,
    *,
    why: str = "",
    seconds: float = confirmations.WAIT_SECONDS,
) -> Confirmed:
    """Give each worker so many processes, 0 for what it was started with; running tasks finish first.

    Raises:
        Refused: no such worker, or the container of one holds fewer processes.
    """
    target = worker_target(topology, name)
    if count < 0:
        raise Refused(
            f"{count} is not a number of processes; give 1 or more, or 0 for what the worker was started with."
        )
    for row in _rows(topology, target):
        if count > children_held(row):
            raise Refused(
                f"The container of {row.service} holds {children_held(row)} processes of {row.child_limit_kib // 1024} "
                f"MiB, and {count} were asked for; raise its memory or start another worker."
            )
    wishes.record(operator, "scale", target, Aspect.CONCURRENCY, count, why=why)
    return confirmations.wait(_reached(target), lambda row: count in (0, row.concurrency), seconds)


def restart(topology: Topology, name: str, operator: Operator, *, why: str = "") -> Confirmed:
    """Replace every process of the workers, one after the other, each when its task has ended. Does not wait."""
    target = worker_target(topology, name)
    (now,) = Worker.objects.values_list(Now(), flat=True)[:1] or (None,)
    if now is None:
        raise Refused("No worker has reported itself, so there is nothing to restart.")
    wishes.record(operator, "restart", target, Aspect.RESTARTED, int(now.timestamp()) + 1, why=why)
    return confirmations.wait(_reached(target), lambda _: True, 0)


def last_of(topology: Topology, name: str) -> tuple[str, ...]:
    """Return the queues from which no worker takes tasks once the workers of this name are parked.

    Raises:
        Refused: no such worker.
    """
    return _left(worker_target(topology, name))


def left_without(nodes: Collection[str], rows: Iterable[WorkerRow]) -> tuple[str, ...]:
    """Return the queues of these workers that no other worker takes tasks of, in order."""
    queues: dict[str, set[str]] = {}
    for row in rows:
        if row.node in nodes or row.state not in TAKES_NONE:
            for queue in row.queues:
                queues.setdefault(queue, set()).add(row.node)
    return tuple(sorted(queue for queue, takers in queues.items() if takers <= set(nodes)))


def _left(target: Target) -> tuple[str, ...]:
    return left_without({row.node for row in workers_of(target)}, overview.workers())


def _reached(target: Target) -> Callable[[Worker], bool]:
    nodes = {row.node for row in workers_of(target)}
    return lambda row: row.node in nodes


def _is_closed(row: Worker) -> bool:
    return row.is_parked and set(row.queues) <= set(row.closed_queues)


def _rows(topology: Topology, target: Target) -> list[Workload]:
    """Return the table's rows of the workers that the target names."""
    services = {row.service for row in workers_of(target)} | {target.name}
    return [row for row in topology.workloads if row.service in services]
