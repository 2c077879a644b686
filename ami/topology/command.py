"""The command line of each process: one worker per queue, and beat."""

import sys
from collections.abc import Mapping, Sequence

from ami.topology.app import APP
from ami.topology.overrides import AUTO
from ami.topology.process import PROCESS, Kind
from ami.topology.topology import Topology, override_name

#: glibc has a heap per thread and cannot release freed memory below a block in use. With these settings large blocks
#: are outside the heaps and are released when freed: after 181 malformed messages a worker keeps 5 MiB instead of 25.
MEMORY = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(1024**2),
    "MALLOC_TRIM_THRESHOLD_": str(4 * 1024**2),
}


def worker(topology: Topology, queue: str, extra: Sequence[str] = ()) -> list[str]:
    """Return the argument vector of the worker that consumes ``queue``; ``extra`` is appended as given.

    Raises:
        TopologyError: no workload consumes the queue.
    """
    row = topology.workload(queue)
    return [
        *_celery("worker"),
        *("--queues", row.queue),
        *("--hostname", f"{row.key.lower()}@%h"),
        *("--pool", row.pool),
        *("--concurrency", AUTO if row.auto_concurrency else str(row.concurrency)),
        *("--prefetch-multiplier", str(row.prefetch_multiplier)),
        *("--max-tasks-per-child", str(row.max_tasks_per_child)),
        *("--max-memory-per-child", str(row.max_memory_per_child_kib)),
        *("--soft-time-limit", str(row.soft_time_limit_seconds)),
        *("--time-limit", str(row.hard_time_limit_seconds)),
        *("--without-gossip", "--without-mingle"),
        *("--loglevel", "INFO"),
        *extra,
    ]


def beat(extra: Sequence[str] = ()) -> list[str]:
    """Return the argument vector of the scheduler, of which there is one; it runs no tasks."""
    return [*_celery("beat"), "--loglevel", "INFO", *extra]


def preflight(argv: Sequence[str]) -> list[str]:
    """Return the argument vector that refuses what the process of ``argv`` would refuse, and starts nothing."""
    return [sys.executable, "-m", f"{APP}.preflight", *argv[len(_celery("")) - 1 :]]


def environment(given: Mapping[str, str], process: Kind | None = None) -> dict[str, str]:
    """Return the environment of a process; ``given`` values win."""
    return {**MEMORY, **({PROCESS: process} if process else {}), **given}


def of_one_machine(
    topology: Topology, environ: Mapping[str, str], concurrency: int | None, cores: int
) -> dict[str, str]:
    """Return the overrides with which all workers share a machine: ``concurrency`` for each row, or at most ``cores``.

    A row whose concurrency ``environ`` sets keeps it, unless ``concurrency`` is given.
    """
    names = {override_name(row, "concurrency"): min(row.concurrency, cores) for row in topology.workloads}
    if concurrency is not None:
        return dict.fromkeys(names, str(concurrency))
    return {name: str(number) for name, number in names.items() if name not in environ}


def _celery(verb: str) -> list[str]:
    return [sys.executable, "-m", "celery", "-A", APP, verb]
