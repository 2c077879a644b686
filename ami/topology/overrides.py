"""The numbers of a row that an operator may override, as ``ANTENNA_<KEY>_<FIELD>``."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from ami.environment.declaration import Variables, variable, variables

Pool = Literal["prefork", "threads", "gevent", "solo"]
PREFIX = "ANTENNA_"

#: In place of a concurrency: the worker takes the number from its machine when it starts.
AUTO = "auto"

DAY_SECONDS = 24 * 3600
GIB = 1024**2


class Overrides(Variables):
    """The numbers of one queue"""

    concurrency: int | None = variable(
        None,
        "Tasks at the same time in one worker; `auto`: 90% of its cores, as many as its container's memory holds.",
        low=1,
        high=512,
        words=(AUTO,),
    )
    prefetch_multiplier: int | None = variable(
        None, "Messages that a worker reserves for each of its slots.", low=1, high=128
    )
    max_tasks_per_child: int | None = variable(None, "Tasks after which a process is replaced.", low=1, high=1_000_000)
    max_memory_per_child_kib: int | None = variable(
        None,
        "Memory in KiB after which a process is replaced, when its task has ended.",
        low=64 * 1024,
        high=1024 * GIB,
    )
    hard_memory_per_child_kib: int | None = variable(
        None, "Memory in KiB at which a running task is ended; not set: an eighth more.", low=64 * 1024, high=1024 * GIB
    )
    soft_time_limit_seconds: int | None = variable(
        None, "Seconds after which a task is asked to end.", low=1, high=DAY_SECONDS
    )
    hard_time_limit_seconds: int | None = variable(
        None,
        "Seconds after which a task is ended; a minute below RabbitMQ's consumer timeout.",
        low=1,
        high=DAY_SECONDS,
    )
    container_memory_kib: int | None = variable(
        None,
        "The container's memory limit in KiB; not set: what its processes may reach.",
        low=128 * 1024,
        high=4096 * GIB,
    )
    cpu_shares: int | None = variable(None, "The container's weight when cores are scarce.", low=2, high=262_144)
    cpus: float | None = variable(None, "The container's limit in cores; not set: none.", low=0.01, high=4096)
    replicas: int | None = variable(None, "How many containers of this worker run.", low=0, high=1000)
    stop_grace_period_seconds: int | None = variable(
        None, "Seconds that a stopped worker has for its running tasks.", low=1, high=DAY_SECONDS
    )
    wait_target_seconds: float | None = variable(
        None, "Seconds within which a task of this queue should start.", low=0, high=DAY_SECONDS
    )
    pool: Pool | None = variable(None, "Celery's pool; memory limits need prefork.")


#: Inclusive bounds of every number of a row.
BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        each.name.lower(): (each.low, each.high)
        for each in variables(Overrides)
        if each.low is not None and each.high is not None
    }
)


def without_auto(environ: Mapping[str, str], name: str) -> tuple[Mapping[str, str], bool]:
    """Return ``environ`` without the variable ``name`` if that is ``auto``, and whether it was."""
    if environ.get(name, "").strip().lower() != AUTO:
        return environ, False
    return {key: value for key, value in environ.items() if key != name}, True


def prefix(key: str) -> str:
    """Return what precedes the name of each variable of the row with this key."""
    return f"{PREFIX}{key}_"
