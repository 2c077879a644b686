"""The limits of one worker: what its command line names, and for the rest its row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from celery import concurrency
from celery.concurrency.prefork import TaskPool
from celery.utils.sysinfo import is_auto_concurrency

from ami.celery.time_limits import TimeLimits, in_proportion
from ami.celery.worker_command import WorkerCommand
from ami.governor.container_capacity import auto_concurrency, children_held
from ami.topology.app import APP
from ami.topology.errors import TopologyError
from ami.topology.workload import Workload

#: The row's field of each option; the attribute of Celery's worker is called like the option, but for the pool's.
FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "concurrency": "concurrency",
        "prefetch_multiplier": "prefetch_multiplier",
        "soft_time_limit": "soft_time_limit_seconds",
        "time_limit": "hard_time_limit_seconds",
        "max_tasks_per_child": "max_tasks_per_child",
        "max_memory_per_child": "max_memory_per_child_kib",
    }
)

#: Pools whose libraries must patch the process before it imports anything, so that only ``--pool`` can name them.
GREEN = ("gevent", "eventlet")

BEAT_REFUSED = (
    "-B starts a beat inside this worker, and beat is a process of its own: leave it out, and run "
    "'python -m ami.topology beat' beside them."
)


@dataclass(frozen=True)
class WorkerLimits:
    """The attributes of Celery's worker that a row decides, and sentences to log when it starts."""

    attributes: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    #: How the machine decided the concurrency; empty where it did not.
    sizing: str = ""

    def info(self) -> dict[str, Any]:
        """Return what ``celery inspect stats`` shows, by option: numbers (0 or None: no limit) and the pool's alias."""
        pool = self.attributes["pool_cls"].__module__.rpartition(".")[2]
        return {**{name: self.attributes[name] for name in FIELDS}, "pool": pool}


def decide(command: WorkerCommand, rows: Sequence[Workload]) -> WorkerLimits:
    """Return the limits of the worker that consumes ``rows``.

    Raises:
        TopologyError: it would run a beat, needs a pool that is not named, or names more children than the container
            holds.
    """
    if command.has_beat:
        raise TopologyError(BEAT_REFUSED)
    row = combined(rows, command)
    pool = _pool(command, row)
    values = {name: command.named.get(name, getattr(row, field)) for name, field in FIELDS.items()}
    is_named, is_solo = "concurrency" in command.named, pool.__module__.endswith("solo")
    is_auto = is_auto_concurrency(values["concurrency"]) if is_named else row.auto_concurrency
    if is_solo and (is_auto or not is_named):
        values["concurrency"], is_auto = 1, False
    values.update(_time_limits(command, row))
    warnings = [_several(rows)] if len(rows) > 1 else []
    is_prefork, sizing = issubclass(pool, TaskPool), ""
    held = _children_held(command, row) if is_prefork else 0
    if is_auto:
        values["concurrency"], sizing = auto_concurrency(row, is_prefork, held)
    if is_prefork:
        number = command.autoscale or values["concurrency"]
        if number > held:
            warnings.append(_beyond(command, row, number, held))
    return WorkerLimits({**values, "pool_cls": pool}, tuple(warnings), sizing)


def combined(rows: Sequence[Workload], command: WorkerCommand) -> Workload:
    """Return one row for a worker of several queues: it stops no task that its own row would let run, and has no more
    children than the smallest of them.
    """
    first = rows[0]
    if len(rows) == 1:
        return first
    if len({row.pool for row in rows}) > 1 and "pool" not in command.named:
        raise TopologyError(
            f"The rows of {_names(rows)} have different pools: run one worker per queue, "
            f"'celery -A {APP} worker -Q QUEUE', or name the pool with -P."
        )
    return replace(
        first,
        queue=_names(rows),
        concurrency=min(row.concurrency for row in rows),
        auto_concurrency=all(row.auto_concurrency for row in rows),
        prefetch_multiplier=min(row.prefetch_multiplier for row in rows),
        max_tasks_per_child=min(row.max_tasks_per_child for row in rows),
        max_memory_per_child_kib=max(row.max_memory_per_child_kib for row in rows),
        hard_memory_per_child_kib=max(row.child_limit_kib for row in rows),
        soft_time_limit_seconds=max(row.soft_time_limit_seconds for row in rows),
        hard_time_limit_seconds=max(row.hard_time_limit_seconds for row in rows),
        container_memory_kib=max(row.memory_limit_kib for row in rows),
    )


def _pool(command: WorkerCommand, row: Workload) -> Any:
    """Return the class of the pool."""
    pool = command.named.get("pool", row.pool)
    if pool in GREEN:  # Named by the command line it would be a class.
        raise TopologyError(
            f"The pool of {row.queue} is {pool}, which must patch the process before it imports anything: run "
            f"'celery -A {APP} worker -Q {row.queue} -P {pool}', or 'python -m ami.topology worker {row.queue}'."
        )
    return concurrency.get_implementation(pool)


def _time_limits(command: WorkerCommand, row: Workload) -> dict[str, float]:
    """Keep the soft limit below the hard one where only one of them is named; what is named stays, also 0."""
    named = TimeLimits(command.named.get("soft_time_limit"), command.named.get("time_limit"))
    if (named.soft is None) == (named.hard is None):
        return {}
    soft, hard = in_proportion(named, TimeLimits(row.soft_time_limit_seconds, row.hard_time_limit_seconds))
    return {"soft_time_limit": soft or 0} if named.soft is None else {"time_limit": hard or 0}


def _children_held(command: WorkerCommand, row: Workload) -> int:
    """Return how many children the container holds, each of the size that is named if it is above the row's."""
    named = int(command.named.get("max_memory_per_child") or 0)
    if named <= row.max_memory_per_child_kib:
        return children_held(row)
    larger = replace(
        row,
        concurrency=1,
        max_memory_per_child_kib=named,
        hard_memory_per_child_kib=None,
        container_memory_kib=row.memory_limit_kib,
    )
    return children_held(larger)


def _beyond(command: WorkerCommand, row: Workload, number: int, held: int) -> str:
    """Return the warning about a row's own number that does not fit; refuse any other.

    Our start command names the row's number, too, so that a row larger than its machine starts as it always did.
    """
    is_own = number == row.concurrency and command.named.get("max_memory_per_child", 0) <= row.max_memory_per_child_kib
    fact = f"{number} children of {row.queue} do not fit beside their parent: this container holds {held}"
    if is_own:
        return f"{fact} at their memory limit; lower ANTENNA_{row.key}_CONCURRENCY or give it more memory."
    raise TopologyError(
        f"{fact} by the row, the cgroup and the machine, whichever is smallest. Name at most {held}, or raise "
        f"ANTENNA_{row.key}_CONCURRENCY and the container's memory."
    )


def _several(rows: Sequence[Workload]) -> str:
    return (
        f"This worker consumes {len(rows)} queues, so a burst in one of {_names(rows)} delays the others. It has the "
        "smallest concurrency and the longest time limits of their rows."
    )


def _names(rows: Sequence[Workload]) -> str:
    return ", ".join(row.queue for row in rows)
