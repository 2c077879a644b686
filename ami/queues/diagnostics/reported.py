"""Findings from the rows that workers write, and from what operators have paused."""

from collections.abc import Iterator, Sequence

from django.conf import settings

from ami.celery.shown_time import shown_time
from ami.celery.thread_database import database_block
from ami.queues import disabling, overview, start_commands, worker_operations
from ami.queues.confirmations import STALE
from ami.queues.diagnostics.finding import Finding
from ami.queues.disabling import DISABLED, Disabled
from ami.queues.letters import watch
from ami.queues.models import DesiredState
from ami.queues.overview import WorkerRow
from ami.queues.pauses import PAUSED, all_paused
from ami.topology.topology import Topology

REMEDIES = {
    "dead": "its messages were delivered again; look why its host is down, or start it again",
    "wedged": "its loop stands still; it ends itself within a minute",
    "cut off": "it has not heard from the broker for a minute; its connection was closed, look at its network",
    "database away": "it answers and cannot write to the database; look at its network and DATABASE_URL",
    "stale": f"it has not reported itself for {STALE.total_seconds():.0f} s; it is rescued if it does not answer",
}


def findings(topology: Topology, rows: Sequence[WorkerRow], *, has_broker: bool = True) -> Iterator[Finding]:
    """Yield what the workers' rows and the operators' wishes tell; without the broker every worker is cut off."""
    for row in rows:
        if (remedy := REMEDIES.get(row.state)) and (has_broker or row.state != "cut off"):
            level = "error" if row.state in ("dead", "wedged", "cut off") else "warning"
            how = _start(topology, row.service) if row.state == "dead" else ""
            yield Finding(level, "worker-state", f"{row.node} is {row.state}: {remedy}{how}.", row.node)
        yield from _of_worker(row, worker_operations.left_without({row.node}, rows))
    for sign in watch.signs(settings.ANTENNA_LETTER_MINUTES):
        yield Finding("warning", sign.name, sign.sentence, sign.target)
    states = list(DesiredState.objects.filter(aspect__in=(DISABLED, PAUSED)).order_by("kind", "name"))
    for row_disabled in disabling.listed(states):
        yield _disabled(row_disabled)
    pauses = all_paused(states)
    for workload in topology.workloads:
        if wish := pauses.get(workload.queue):
            until = f" until {shown_time(wish.until)}" if wish.until else ""
            why = f" ({wish.why})" if wish.why else ""
            yield Finding(
                "warning",
                "paused",
                f"{workload.queue} is paused by {wish.by} since {shown_time(wish.since)}{until}{why}; "
                f"'manage.py queues resume {workload.queue}' ends it.",
                workload.queue,
            )


def _start(topology: Topology, service: str) -> str:
    commands = [start_commands.of_worker(row) for row in topology.workloads if row.service == service]
    return f": '{commands[0]}'" if commands else ""


def _disabled(row: Disabled) -> Finding:
    name, why = disabling.name_of(row.kind, row.name), f" ({row.why})" if row.why else ""
    if row.is_over:
        sentence = f"{name} is enabled; {row.set_aside} messages are on their way back."
        return Finding("warning", "set-aside", sentence, name)
    fact = f"{name} is disabled by {row.by}{why}; {row.set_aside} messages are set aside"
    return Finding("warning", "disabled", f"{fact}. 'manage.py queues enable {name}' ends it.", name)


def workers() -> Sequence[WorkerRow]:
    """Return the workers' rows.

    Raises:
        django.db.Error: the database did not answer.
    """
    with database_block():
        return overview.workers()


def closed_queues(topology: Topology, rows: Sequence[WorkerRow]) -> set[str]:
    """Return the queues without a consumer because operators want it so: paused, or every worker parked.

    Raises:
        django.db.Error: the database did not answer.
    """
    with database_block():
        pauses = all_paused()
    queues = {queue for row in rows for queue in row.queues}
    parked = {queue for queue in queues if all(row.state == "parked" for row in rows if queue in row.queues)}
    return parked | {row.queue for row in topology.workloads if row.queue in pauses}


def _of_worker(row: WorkerRow, left: Sequence[str]) -> Iterator[Finding]:
    if row.state == "parked":
        what = f", and no other worker takes tasks of {', '.join(left)}" if left else ""
        sentence = f"{row.node} is parked{what}; 'manage.py queues unpark {row.node}' ends it."
        yield Finding("error" if left else "warning", "parked", sentence, row.node)
    if row.repairs:
        counts = ", ".join(f"{what} {count}" for what, count in sorted(row.repairs.items()))
        sentence = f"{row.node} was not as wanted and was repaired, since its start: {counts}."
        yield Finding("warning", "drift", sentence, row.node)
    if row.unaccounted:
        yield Finding(
            "error",
            "unaccounted",
            f"{row.node} holds {row.unaccounted} messages that it neither runs nor settles; restart "
            "its process: the broker delivers them again.",
            row.node,
        )
