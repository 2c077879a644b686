"""Reclaims memory from a worker's children: recycles, interrupts or ends them, and at last ends the worker."""

import os

from celery.utils.log import get_logger
from celery.worker import state

from ami.governor import policy, reclaim
from ami.governor.crash_log import RunLog
from ami.governor.growth import Growth
from ami.governor.monitor import Monitor
from ami.governor.pool_adapters import PoolAdapter
from ami.governor.settings import GovernorSettings
from ami.governor.task_sizes import TaskSizes

logger = get_logger(__name__)

#: Exit status for a leaking worker: EX_TEMPFAIL asks the supervisor to restart it.
EXIT_CODE = os.EX_TEMPFAIL


class MemoryReclaimer:
    """Applies :mod:`ami.governor.reclaim` to the pool's children, and counts what it did."""

    def __init__(
        self,
        settings: GovernorSettings,
        pool: PoolAdapter,
        monitor: Monitor,
        sizes: TaskSizes,
        run_log: RunLog | None,
    ) -> None:
        self._settings, self._pool, self._monitor = settings, pool, monitor
        self._sizes, self._run_log = sizes, run_log
        self._growth = Growth()
        self.ended = self.interrupted = 0

    def check_limits(self) -> None:
        """Record the size of each running task; recycle or end a child that exceeds its limits."""
        if not self._pool.has_children:
            return
        children = self._pool.running_children()
        if self._run_log:
            for child in children:
                self._run_log.record_size(child.pid, child.pss_kib)
        if self._settings.acts:
            self._apply_all(reclaim.over_limit(children, self._pool.soft_kib, self._pool.hard_kib), children)
        self._growth.record(children, self._monitor.now())
        if self._run_log:
            self._run_log.remove_ended({*self._pool.pids, os.getpid()})

    def next_check_seconds(self) -> float:
        """Return the seconds until a child could reach its hard limit, at most the check interval."""
        return self._growth.next_check_seconds(self._pool.hard_kib, self._settings.memory_check_interval)

    def reclaim_memory(self) -> None:
        """Recycle grown children while memory holds the worker; end the worker when it is itself the cause."""
        monitor, settings = self._monitor, self._settings
        if not monitor.gate.held or not settings.acts or self._pool.unstarted:
            return
        children = self._pool.children() if monitor.children is None else monitor.children
        self._apply_all(reclaim.reclaim_actions(settings, monitor.gate, children), children)
        if monitor.inputs and (sentence := policy.must_exit(settings, monitor.gate, monitor.inputs)):
            logger.critical("%s Exit code %s asks for a restart.", sentence, EXIT_CODE)
            state.should_stop = EXIT_CODE

    def _apply_all(self, actions: list[reclaim.ReclaimAction], children: list[reclaim.Child]) -> None:
        by_pid = {child.pid: child for child in children}
        for action in actions:
            self._apply(action, by_pid[action.pid])

    def _apply(self, action: reclaim.ReclaimAction, child: reclaim.Child) -> None:
        fields = {"task": child.task, "child_pid": child.pid}
        if action.kind == "end":
            if self._pool.end(child.pid, child.task or "", child.pss_kib):
                self.ended += 1
                self._sizes.learn(child.task or "", child.grown_kib)
                logger.error("Task ended: %s (pid %s)", action.reason, child.pid, extra=fields)
        elif action.kind == "interrupt-busy":
            if self._pool.interrupt(child.pid):
                self.interrupted += 1
                logger.warning("Task interrupted: %s (pid %s)", action.reason, child.pid, extra=fields)
        elif not child.draining:
            self._pool.recycle(child.pid, "held" if self._monitor.gate.held else "soft-limit")
            logger.info("Child recycled: %s (pid %s)", action.reason, child.pid, extra=fields)
