"""Samples the machine and keeps the policy's current decision."""

import time
from collections.abc import Callable

from celery.utils.log import get_logger
from celery.worker import state

from ami.governor import policy, reclaim
from ami.governor.pool_adapters import PoolAdapter
from ami.governor.probes.machine import Machine
from ami.governor.sample import Sample
from ami.governor.settings import GovernorSettings

logger = get_logger(__name__)

#: A timer may fire a little early.
AFTER_RELEASE_SECONDS = 0.01


class Monitor:
    """The latest sample, the gate decided from it, and how often and for how long the worker was held.

    ``children`` are the pool's children at the last check, None while not held; ``change`` is a log line that was not
    written yet.
    """

    def __init__(
        self,
        settings: GovernorSettings,
        pool: PoolAdapter,
        machine: Machine,
        paused: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._pool, self._machine, self._paused, self._clock = settings, pool, machine, paused, clock
        self.started_at = clock()
        self.gate, self.sample = policy.Gate(), Sample()
        self.inputs: policy.DecisionInput | None = None
        self.children: list[reclaim.Child] | None = None
        self.change: str | None = None
        self.checks = self.holds = self.admitted = 0
        self._held_seconds = 0.0
        self._checked_at = self._previous_at = 0.0
        self._previous = Sample()
        self._next_seconds = settings.memory_check_interval
        self._faults: tuple[str, ...] = ()
        self._was_paused = self._pause_fails = False

    def now(self) -> float:
        """The clock's monotonic seconds."""
        return self._clock()

    @property
    def is_due(self) -> bool:
        """Whether the time of the next check has come."""
        return self._clock() - self._checked_at >= self._next_seconds

    @property
    def held_seconds_now(self) -> float:
        """For how long the worker was held in all, the present hold included."""
        return self._held_seconds + (self._clock() - self._checked_at if self.gate.held else 0.0)

    def check(self) -> None:
        """Take a sample and decide."""
        now = self._clock()
        self.checks += 1
        if self.gate.held:
            self._held_seconds += now - max(self._checked_at, self.gate.since)
        self._previous, self._previous_at, self._checked_at = self.sample, self._checked_at, now
        self.sample = self._machine.read()
        self._report_faults()
        before = self.gate
        self.inputs = self._decision_input(now)
        self.gate = policy.decide(self._settings, before, self.inputs)
        self.admitted += self.gate.admit_one and not before.admit_one
        self.holds += self.gate.held and not before.held
        if line := policy.announce(before, self.gate, self.sample):
            self.change = f"{self.change} | {line}" if self.change else line

    def schedule_next(self, at_most_seconds: float) -> float:
        """Return the seconds until the next check: sooner when memory grows fast, or a wait ends before."""
        previous, interval = (self._previous if self._previous_at else None), self._settings.memory_check_interval
        elapsed = self._checked_at - self._previous_at if self._previous_at else interval
        seconds = policy.next_check_seconds(self._settings, previous, self.sample, elapsed)
        release = self.inputs and policy.seconds_to_release(self._settings, self.gate, self.inputs)
        if release:
            seconds = min(seconds, release + AFTER_RELEASE_SECONDS)
        self._next_seconds = min(seconds, at_most_seconds)
        return self._next_seconds

    def _decision_input(self, now: float) -> policy.DecisionInput:
        """Measure the children once a check, and only while held: the kernel walks every page of each."""
        held, pool = self.gate.held, self._pool
        self.children = pool.children() if held else None
        return policy.DecisionInput(
            sample=self.sample,
            now=now,
            started_at=self.started_at,
            paused=self._is_paused(),
            running=pool.running,
            started=sum(state.total_count.values()),
            own_kib=pool.own_kib() if held else 0,
            baseline_kib=pool.baseline_kib if held else 0,
            can_recycle=held and any(not child.task and reclaim.is_worth(child) for child in self.children or ()),
        )

    def _is_paused(self) -> bool:
        """Whether the operator has paused the queue; while its port raises, which is logged once, its last answer."""
        try:
            self._was_paused, self._pause_fails = self._paused(), False
        except Exception:
            if not self._pause_fails:
                kept = "paused" if self._was_paused else "not paused"
                logger.exception("Operator's pause unknown, the queue stays %s", kept)
            self._pause_fails = True
        return self._was_paused

    def _report_faults(self) -> None:
        for fault in set(self.sample.faults) - set(self._faults):
            logger.warning("Probe failed, ignoring its value: %s", fault)
        self._faults = self.sample.faults
