"""A workload: one queue and the worker service that consumes it."""

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import get_args

from ami.topology.errors import TopologyError
from ami.topology.overrides import BOUNDS, Pool

POOLS = get_args(Pool)
ORIGINS = ("beat", "person", "task")

#: Memory of a prefork worker's parent process in KiB (measured: 95 to 140 MiB).
PARENT_MEMORY_KIB = 192 * 1024

#: RabbitMQ closes the channel of a consumer that keeps a message unacknowledged longer; its default is 30 minutes
#: (https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout, incident 4), so every hard limit stays below it.
CONSUMER_TIMEOUT_SECONDS = 1800


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One row of the topology table.

    ``tasks`` are exact task names or globs (``*`` only). ``redirects`` maps an origin to the queue for this row's
    tasks from that origin. ``inherits_origin``: a task of this row published by another task keeps that one's origin.
    ``enabled_by`` names the environment variable that enables the row; without it the row is off.
    ``auto_concurrency``: the worker takes its concurrency from its machine when it starts; ``concurrency`` is then only
    what the container's memory is made for.
    ``cpus`` is a hard limit; without one ``cpu_shares`` decides when cores are scarce.
    ``governor`` overrides settings of the memory-aware worker for this queue, by field name.

    Raises:
        TopologyError: a number is out of bounds or contradicts another; with the row, the field and the remedy.
    """

    queue: str
    key: str
    service: str
    promise: str
    tasks: tuple[str, ...] = ()
    pool: str = "prefork"
    concurrency: int
    auto_concurrency: bool = False
    prefetch_multiplier: int = 1
    max_tasks_per_child: int
    max_memory_per_child_kib: int
    hard_memory_per_child_kib: int | None = None
    soft_time_limit_seconds: int
    hard_time_limit_seconds: int
    container_memory_kib: int | None = None
    cpu_shares: int = 1024
    cpus: float | None = None
    replicas: int = 1
    stop_grace_period_seconds: int
    wait_target_seconds: float
    redirects: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    inherits_origin: bool = False
    enabled_by: str | None = None
    governor: Mapping[str, float | bool | str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        self._refuse_bad_numbers()
        self._refuse_contradictions()

    def _refuse_bad_numbers(self) -> None:
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise TopologyError(f"{self.queue}: {name} is {value}; it must be between {low} and {high}.")

    def _refuse_contradictions(self) -> None:
        if self.pool not in POOLS:
            raise TopologyError(f"{self.queue}: pool is '{self.pool}'; choose one of {', '.join(POOLS)}.")
        if self.soft_time_limit_seconds >= self.hard_time_limit_seconds:
            raise TopologyError(
                f"{self.queue}: soft_time_limit_seconds ({self.soft_time_limit_seconds}) must be below "
                f"hard_time_limit_seconds ({self.hard_time_limit_seconds}), or no task could clean up."
            )
        if self.hard_time_limit_seconds + 60 > CONSUMER_TIMEOUT_SECONDS:
            raise TopologyError(
                f"{self.queue}: hard_time_limit_seconds ({self.hard_time_limit_seconds}) must stay a minute below "
                f"RabbitMQ's consumer timeout ({CONSUMER_TIMEOUT_SECONDS}); work in slices instead (incident 4)."
            )
        too_small = self.container_memory_kib is not None and self.container_memory_kib < self.needed_memory_kib
        if too_small and not self.auto_concurrency:
            raise TopologyError(
                f"{self.queue}: container_memory_kib ({self.container_memory_kib}) is less than the "
                f"{self.needed_memory_kib} KiB that {self.concurrency} children of {self.max_memory_per_child_kib} KiB "
                f"and their parent may reach; raise it or lower concurrency (incident 6)."
            )
        if self.child_limit_kib < self.max_memory_per_child_kib:
            raise TopologyError(
                f"{self.queue}: hard_memory_per_child_kib ({self.child_limit_kib}) is below max_memory_per_child_kib "
                f"({self.max_memory_per_child_kib}): a child would be ended before it could be recycled."
            )
        for origin in self.redirects:
            if origin not in ORIGINS:
                raise TopologyError(
                    f"{self.queue}: redirects names the origin '{origin}'; known: {', '.join(ORIGINS)}."
                )

    @property
    def needed_memory_kib(self) -> int:
        """Memory in KiB of the parent and of all children just before they are recycled."""
        return self.concurrency * self.max_memory_per_child_kib + PARENT_MEMORY_KIB

    @property
    def child_limit_kib(self) -> int:
        """Memory in KiB at which one child's running task is ended: by default an eighth above the recycling limit, so
        that all children together still fit the container.
        """
        return self.hard_memory_per_child_kib or self.max_memory_per_child_kib + self.max_memory_per_child_kib // 8

    @property
    def memory_limit_kib(self) -> int:
        """The container's memory limit in KiB: the row's own, or the needed memory plus an eighth."""
        return self.container_memory_kib or self.needed_memory_kib + self.needed_memory_kib // 8

    @property
    def dead_letter_queue(self) -> str:
        """The name of this queue's dead-letter queue."""
        return f"{self.queue}.dlq"

    def claim(self, task: str) -> str | None:
        """Return this row's rule for ``task``: an exact name before a glob, or None."""
        if task in self.tasks:
            return task
        return next((rule for rule in self.tasks if "*" in rule and fnmatch.fnmatchcase(task, rule)), None)
