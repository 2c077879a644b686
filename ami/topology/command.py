"""The command line of each process: one worker per queue, and beat."""

import sys
from collections.abc import Sequence

from ami.topology.topology import Topology

APP = "config"


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
        *("--concurrency", str(row.concurrency)),
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
    """Return the argument vector of the one scheduler; it schedules and executes nothing."""
    return [*_celery("beat"), "--loglevel", "INFO", *extra]


def _celery(verb: str) -> list[str]:
    return [sys.executable, "-m", "celery", "-A", APP, verb]
