"""How many more tasks fit into memory beside the growth that is reserved for the running ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from celery.utils.log import get_logger

from ami.governor.child_process import read_samples
from ami.governor.crash_log import RunLog
from ami.governor.pool_adapters import PoolAdapter
from ami.governor.sample import Sample
from ami.governor.settings import GovernorSettings
from ami.governor.task_sizes import TaskSizes

logger = get_logger(__name__)


@dataclass(frozen=True)
class Promise:
    """A task that runs, and what it has added to its process so far."""

    task: str
    added_kib: int


@dataclass(frozen=True)
class Admission:
    """How many more tasks may start, and the numbers it follows from; ``largest`` is None if nothing was learned."""

    slots: int
    largest: str | None
    largest_kib: int
    promised_kib: int
    sentence: str


def promised_kib(sizes: TaskSizes, running: Sequence[Promise], default_kib: int = 0) -> int:
    """Return what the running tasks may still add; one never seen before counts as ``default_kib``."""
    known = ((sizes.p95_kib(promise.task), promise.added_kib) for promise in running)
    return sum(max(0, (default_kib if size is None else size) - added) for size, added in known)


def admissible(
    settings: GovernorSettings,
    sample: Sample,
    sizes: TaskSizes,
    running: Sequence[Promise],
    free_slots: int,
    default_kib: int,
) -> Admission:
    """Return how many more tasks fit below the throttle threshold, 0 to ``free_slots``.

    Which task comes next is unknown until it was delivered, so each counts as the largest known one, or as
    ``default_kib`` while none is known. When nothing runs, one is admitted in any case. Memory unknown: all.
    """
    free_slots, promised = max(0, free_slots), promised_kib(sizes, running, default_kib)
    largest, largest_kib = sizes.largest_kib() or (None, default_kib)
    room = sample.room_bytes(settings.memory_throttle_threshold)
    if room is None:
        return Admission(free_slots, largest, largest_kib, promised, f"memory unknown: all {free_slots} free slots")
    room_kib = math.floor(room / 1024) - promised
    fit = room_kib // max(1, largest_kib)
    slots = min(free_slots, max(fit, 0 if running else 1))
    sentence = (
        f"{slots} of {free_slots} free slots: {room_kib // 1024} MiB are left below "
        f"{settings.memory_throttle_threshold:g}% after {promised // 1024} MiB promised to {len(running)} running, "
        f"and {largest or 'a task not seen before'} may add {largest_kib // 1024} MiB"
    )
    return Admission(slots, largest, largest_kib, promised, sentence)


class Reservation:
    """The slots of one worker by MEMORY_RESERVATION, brought up to date at each check; ``sentence`` explains them."""

    def __init__(self, settings: GovernorSettings, pool: PoolAdapter, sizes: TaskSizes, run_log: RunLog | None) -> None:
        self._settings, self._pool, self._sizes, self._run_log = settings, pool, sizes, run_log
        self._before: dict[int, Promise] = {}
        self.slots = 0
        self.sentence = ""

    def measure(self) -> None:
        """Measure what the running tasks have added; call it before the machine's sample is taken.

        A task that grows after the sample would else keep no promise of memory that the sample does not contain, and
        as many tasks again would be let in.
        """
        if self._settings.memory_reservation != "off":
            self._before = self._running()

    def update(self, sample: Sample) -> None:
        """Read the children's samples, and work out how many messages the worker may have."""
        if self._settings.memory_reservation == "off":
            return
        self._learn()
        pool, settings = self._pool, self._settings
        running = self._promises()
        busy = max(len(running), pool.running)
        if pool.has_children:
            # Delivered and not started, or just ended with the next one due: each may be the largest.
            largest, _ = self._sizes.largest_kib() or ("", 0)
            running += [Promise(largest, 0)] * (busy - len(running))
        free = max(0, pool.places + pool.growth - busy)
        admission = admissible(settings, sample, self._sizes, running, free, pool.default_task_kib)
        self.slots = busy + admission.slots
        if admission.sentence != self.sentence and admission.slots < free:
            dry = "" if settings.memory_reservation == "on" and settings.acts else "[dry-run] "
            logger.info("%sReservation: %s", dry, admission.sentence)
        self.sentence = admission.sentence

    def _promises(self) -> list[Promise]:
        """Return the tasks that run now, each with what it had added before the sample as well as now."""
        before = self._before
        return [
            Promise(now.task, min(now.added_kib, before[pid].added_kib if pid in before else 0))
            for pid, now in self._running().items()
        ]

    def _running(self) -> dict[int, Promise]:
        children = [child for child in self._pool.children() if child.task]
        return {child.pid: Promise(child.task or "", max(0, child.grown_kib)) for child in children}

    def _learn(self) -> None:
        samples = read_samples(self._run_log.folder) if self._run_log else []
        for task, added_kib in samples:
            self._sizes.learn(task, added_kib)
        if samples:
            self._sizes.save()
