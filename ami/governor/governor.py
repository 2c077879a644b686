"""Holds and releases the consumption of one worker: samples the machine, applies the policy, reclaims memory."""

import time
from collections.abc import Callable
from typing import Any

from ami.governor.announcer import ChangeAnnouncer, ignore_event
from ami.governor.crash_log import RunLog
from ami.governor.memory_reclaimer import MemoryReclaimer
from ami.governor.metrics import status
from ami.governor.monitor import Monitor
from ami.governor.poison_tasks import PoisonTaskDetector
from ami.governor.pool_adapters import PoolAdapter
from ami.governor.probes.machine import Machine
from ami.governor.reservation import Reservation
from ami.governor.settings import GovernorSettings
from ami.governor.slot_consumer import SlotConsumer
from ami.governor.slot_controller import SlotController
from ami.governor.task_sizes import TaskSizes


class Governor:
    """One per worker process; a consumer is attached after each connect.

    ``paused`` reports the operator's pause and is called at each check; ``clock`` returns monotonic seconds. All
    methods run on the thread of the worker's loop.
    """

    def __init__(
        self,
        settings: GovernorSettings,
        pool: PoolAdapter,
        run_log: RunLog | None,
        paused: Callable[[], bool] = lambda: False,
        machine: Machine | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self.pool, self._clock = settings, pool, clock
        self.sizes = TaskSizes(run_log.folder / "sizes.json" if run_log else None)
        self.sizes.load()
        self.poison = PoisonTaskDetector(run_log, settings.acts)
        self.monitor = Monitor(settings, pool, machine or Machine(), paused, clock)
        self.announcer = ChangeAnnouncer(settings, pool, self.monitor)
        self.reservation = Reservation(settings, pool, self.sizes, run_log)
        self.reclaimer = MemoryReclaimer(settings, pool, self.monitor, self.sizes, run_log)
        self.slots = SlotController(settings, pool, self.monitor, self.poison, self.reservation)
        self.slots.check_between_tasks = self.observe
        pool.changed = self.slots.pool_changed

    def attach(
        self, consumer: SlotConsumer, call_soon: Callable[..., Any], event: Callable[..., Any] = ignore_event
    ) -> None:
        """Manage the consumer of a new connection before its first consume; a hold stays in force."""
        self.announcer.event = event
        self.poison.reconnected()
        self.monitor.check()
        self.slots.attach(consumer, call_soon)

    def detach(self) -> None:
        """Forget the consumer of a lost connection."""
        self.slots.detach()

    def check(self) -> float:
        """Observe, adjust the slots, and act; return the seconds until the next check."""
        seconds = self.observe()
        self.adjust()
        self.act()
        return seconds

    def observe(self) -> float:
        """Sample the machine and decide, without using the broker; return the seconds until the next check."""
        self.pool.measure_baseline()
        self.reservation.measure()
        self.monitor.check()
        self.reclaimer.check_limits()
        if self._clock() - self.monitor.started_at >= self.settings.memory_max_hold_seconds:
            self.poison.expire()
        self.reservation.update(self.monitor.sample)
        self.slots.update()
        return self.monitor.schedule_next(self.reclaimer.next_check_seconds())

    def adjust(self) -> None:
        """Open or close slots as decided. Raises what the broker's connection raises."""
        self.slots.adjust()

    def act(self) -> None:
        """Reclaim memory and announce what changed."""
        self.reclaimer.reclaim_memory()  # With the slots closed: an idle child stays idle.
        self.announcer.announce()

    @property
    def counts(self) -> dict[str, int]:
        """The counters that ``info`` shows."""
        return {
            "looks": self.monitor.checks,
            "holds": self.monitor.holds,
            "ended": self.reclaimer.ended,
            "interrupted": self.reclaimer.interrupted,
            "buried": self.slots.buried,
            "admitted": self.monitor.admitted,
        }

    def summary(self) -> dict[str, Any]:
        """Return mode, state, reasons, causes, memory in bytes, its thresholds in percent, and since when it holds
        (seconds); from any thread.
        """
        gate, sample, settings = self.monitor.gate, self.monitor.sample, self.settings
        return {
            "mode": settings.memory_governor,
            "state": "held" if gate.held else "consuming",
            "reasons": list(gate.reasons),
            "causes": sorted(gate.causes),
            "memory_used_bytes": sample.memory_used_bytes,
            "memory_limit_bytes": sample.memory_limit_bytes,
            "hold_percent": settings.memory_throttle_threshold,
            "release_percent": settings.memory_resume_threshold,
            "held_seconds": round(self.monitor.now() - gate.since, 1) if gate.held else None,
        }

    def info(self) -> dict[str, Any]:
        """Return what ``celery inspect stats`` shows: state, reasons, sample, thresholds, seconds held, and counts."""
        return {
            **status(self.settings, self.monitor.gate, self.monitor.sample),
            "slots": self.slots.open,
            "places": self.pool.places,
            "running": self.pool.running,
            "held_seconds": round(self.monitor.held_seconds_now, 1),
            "soft_limit_kib": self.pool.soft_kib,
            "hard_limit_kib": self.pool.hard_kib,
            "recycled": self.pool.counts(),
            "redelivered": self.slots.redelivered,
            "suspects": sorted(self.poison.open),
            "reservation": self.reservation.sentence,
            **self.counts,
        }
