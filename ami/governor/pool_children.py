"""The processes of a prefork pool: which may receive a task, what each runs, and how one is recycled or ended."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from billiard.pool import DEATH, READY
from celery.concurrency.asynpool import WORKER_UP, AsynPool

from ami import celery_internals
from ami.governor.outcome import as_einfo, reached_ceiling, without_memory_error
from ami.governor.probes import process

#: Why a child is draining that has run as many tasks as it may: it exits without being asked.
MAX_TASKS = "max-tasks"

#: The pool checks for exited children every 5 s; one that was recycled is replaced after the second time.
POOL_CHECK_SECONDS, REAP_SECONDS = 5.0, 0.1

#: A draining child that has not exited after this time is killed.
LEAVE_SECONDS = 10.0


@dataclass
class ChildState:
    """What the parent keeps about one child; ``draining`` is the reason, empty while the child may take tasks."""

    fresh_kib: int = 0
    tasks: int = 0
    draining: str = ""
    cooling_until: float = 0.0
    resident: process.Resident | None = None


class Children:
    """The children of Celery's asynchronous prefork pool, whose parent alone assigns tasks.

    After each task the parent decides whether the child continues, cools down (``cooldown_seconds``) or is recycled,
    before the task's message is acknowledged: the worker's slots are lowered in time, and no message arrives without a
    process for it. ``changed`` is called when a child became ready or unready. All methods run on the thread of the
    worker's loop.
    """

    def __init__(self, pool: AsynPool, changed: Callable[[], None], call_later: Callable[..., Any]) -> None:
        self._pool, self._changed, self._call_later = pool, changed, call_later
        self._states: dict[int, ChildState] = {}
        self.soft_kib = self.ceiling_kib = 0
        #: The name of the task that a child runs, by its pid.
        self.task_name: Callable[[int], str] = lambda _: "a task"
        self.max_tasks = celery_internals.max_tasks_per_child(pool)
        self.cooldown_seconds = 0.0
        #: When the cooldowns end of places whose child is being replaced; a replacement waits for the earliest.
        self._cooldown_ends: list[float] = []
        self.single_job = False
        self.recycled: dict[str, int] = {}
        handlers = celery_internals.result_handlers(pool)
        handlers[READY] = self._around_ready(handlers[READY])
        handlers[WORKER_UP] = self._after_up(handlers[WORKER_UP])
        handlers[DEATH] = self._instead_of_death(handlers[DEATH])

    @property
    def ready(self) -> int:
        """How many children run a task or could start one now."""
        now = time.monotonic()
        return sum(1 for child in self._up() if not self.draining(child.pid) and not self._is_cooling_down(child, now))

    def idle(self) -> list[int]:
        """The children that run no task and have not been sent one."""
        now = time.monotonic()
        return [child.pid for child in self._up() if not self._is_busy(child) or self._is_cooling_down(child, now)]

    def busy(self) -> dict[int, Any]:
        """The pool's job of each child that has started one."""
        jobs = celery_internals.jobs(self._pool)
        return {pid: job for job in jobs if (pid := celery_internals.job_pid(job)) and not job.ready()}

    def fresh_kib(self, pid: int) -> int:
        """The child's size right after its start."""
        return self._state_of(pid).fresh_kib

    def used(self, pid: int) -> bool:
        """Whether the child has run a task."""
        return self._state_of(pid).tasks > 0

    def draining(self, pid: int) -> bool:
        """Whether the child is being recycled, or will be after its task."""
        return bool(self._state_of(pid).draining)

    def before_loop(self) -> None:
        """Repair a pool that survived a lost connection before the next loop registers it.

        Celery 5.7 stops watching a child when its end of the pipe closes, shortly before the child can be reaped. A
        loop that registers the pool at that moment ends the worker with "file descriptor is None" (seen).
        """
        now = time.monotonic()
        for child in celery_internals.processes(self._pool):
            celery_internals.drop_closed_sentinel(child)
            if self._is_cooling_down(child, now) or self.draining(child.pid):
                self._withhold(child)  # The pool has forgotten which children must not receive a task.

    def recycle(self, pid: int, why: str) -> None:
        """Replace the child: now if idle, else after its task. ``why`` is one word for the count."""
        state, child = self._state_of(pid), self._by_pid(pid)
        if child is None or state.draining:
            return
        self._drain(state, why)
        if not self._is_busy(child) or self._is_cooling_down(child, time.monotonic()):
            if state.cooling_until:
                self._cooldown_ends.append(state.cooling_until)
            self._terminate(child)

    def interrupt(self, pid: int) -> bool:
        """Send the child's task the signal of a soft time limit; return whether it ran one."""
        if pid not in self.busy():
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
        return True

    def end(self, pid: int, error: Exception) -> bool:
        """Kill the child and fail its task with ``error``, like a hard time limit; return whether it ran one."""
        job, child = self.busy().get(pid), self._by_pid(pid)
        if job is None:
            return False
        state = self._state_of(pid)
        state.draining = state.draining or "ended"
        if child is not None:  # Else it has ended, and the pool has noticed.
            celery_internals.expect_exit(child)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        celery_internals.fail_job(job, as_einfo(error))
        return True

    def _around_ready(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        def on_ready(job: int, i: Any, result: Any, fd: int) -> None:
            child = celery_internals.process_of(self._pool, fd)
            continues = child is None or self._may_continue(child, result)
            if not continues:
                self._changed()  # Before the handler, which settles the message and so requests the next one.
            handler(job, i, self._settleable(child, result), fd)
            if not continues:
                self._after_last_task(child)

        return on_ready

    def _settleable(self, child: Any, result: Any) -> Any:
        """Return a task's outcome without the error for which Celery ends the whole worker."""
        if child is None or not self.ceiling_kib:
            return result
        return without_memory_error(result, self.task_name(child.pid), self.ceiling_kib)

    def _may_continue(self, child: Any, result: Any) -> bool:
        """Decide whether the child may start the next task at once."""
        state = self._state_of(child.pid)
        state.tasks += 1
        if reached_ceiling(result, self.ceiling_kib):
            self._drain(state, "ceiling")
        if self.max_tasks and state.tasks >= self.max_tasks:
            if not state.draining:
                self._drain(state, MAX_TASKS)
            state.draining = MAX_TASKS
        elif not state.draining and (why := self._recycle_reason(child.pid)):
            self._drain(state, why)
        if self.cooldown_seconds:
            ends = time.monotonic() + self.cooldown_seconds
            if state.draining:
                self._cooldown_ends.append(ends)
            else:
                self._cool_down(child, ends)
        return not state.draining and not self.cooldown_seconds

    def _cool_down(self, child: Any, ends: float) -> None:
        self._state_of(child.pid).cooling_until = ends
        self._call_later(ends - time.monotonic(), self._end_cooldown, child)

    def _continue_cooldown(self, pid: int) -> None:
        """Let the replacement of a child wait for the rest of its place's cooldown."""
        now, child = time.monotonic(), self._by_pid(pid)
        self._cooldown_ends = sorted(ends for ends in self._cooldown_ends if ends > now)
        if self._cooldown_ends and child is not None:
            self._cool_down(child, self._cooldown_ends.pop(0))
            self._withhold(child)

    def _drain(self, state: ChildState, why: str) -> None:
        state.draining = why
        self.recycled[why] = self.recycled.get(why, 0) + 1

    def _after_last_task(self, child: Any) -> None:
        self._withhold(child)
        draining = self._state_of(child.pid).draining
        if draining == MAX_TASKS:
            self._call_later(LEAVE_SECONDS, self._kill, child)
        elif draining:
            self._terminate(child)

    def _withhold(self, child: Any) -> None:
        """Keep tasks from a child: the pool writes only to children that are not busy."""
        celery_internals.busy_fds(self._pool).add(child.inqW_fd)

    def _recycle_reason(self, pid: int) -> str:
        if self.single_job:
            return "single-job"
        if not self.soft_kib:
            return ""
        resident = self._state_of(pid).resident
        with suppress(OSError):
            # RSS bounds PSS from above at a thousandth of the cost.
            if resident and resident.kib() > self.soft_kib and process.pss_kib(pid) > self.soft_kib:
                return "soft-limit"
        return ""

    def _after_up(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        def on_up(pid: int) -> None:
            handler(pid)
            state = self._states[pid] = ChildState()
            with suppress(OSError):
                state.fresh_kib = process.pss_kib(pid)
                state.resident = process.Resident(pid)
            for ended in set(self._states) - {child.pid for child in celery_internals.processes(self._pool)}:
                if resident := self._states.pop(ended).resident:
                    resident.close()
            self._continue_cooldown(pid)
            self._changed()

        return on_up

    def _instead_of_death(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Kill a draining child that reports its exit: it has cleaned up, and billiard would let it sleep a second."""

        def on_death(pid: int, exitcode: int | None) -> None:
            if not self.draining(pid):
                handler(pid, exitcode)
                return
            if child := self._by_pid(pid):
                celery_internals.expect_exit(child)
                self._call_later(REAP_SECONDS, self._reap, child, REAP_SECONDS)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        return on_death

    def _end_cooldown(self, child: Any) -> None:
        state = self._state_of(child.pid)
        if time.monotonic() + 0.01 < state.cooling_until:
            return
        state.cooling_until = 0.0
        if child in self._up() and not state.draining:
            celery_internals.busy_fds(self._pool).discard(child.inqW_fd)
        self._changed()

    def _terminate(self, child: Any) -> None:
        """End an idle child; the pool replaces it."""
        self._withhold(child)
        with suppress(OSError):
            child.terminate_controlled()
        self._call_later(REAP_SECONDS, self._reap, child, REAP_SECONDS)
        self._call_later(LEAVE_SECONDS, self._kill, child)

    def _reap(self, child: Any, waited_seconds: float) -> None:
        """Replace a child that has exited; look again, ever later, for one that is still on its way."""
        self._pool.maintain_pool()
        if self._by_pid(child.pid) is child and waited_seconds < POOL_CHECK_SECONDS:
            self._call_later(waited_seconds, self._reap, child, 2 * waited_seconds)

    def _kill(self, child: Any) -> None:
        """Kill a draining child that has not exited: its place would stay empty for ever."""
        if self._by_pid(child.pid) is child:
            with suppress(OSError):
                os.kill(child.pid, signal.SIGKILL)

    def _is_cooling_down(self, child: Any, now: float) -> bool:
        return self._state_of(child.pid).cooling_until > now

    def _is_busy(self, child: Any) -> bool:
        return child.inqW_fd in celery_internals.busy_fds(self._pool)

    def _up(self) -> Iterator[Any]:
        """The children that are ready for tasks; a descriptor may belong to a child's replacement by now."""
        up = celery_internals.open_fds(self._pool)
        return (
            child
            for child in celery_internals.processes(self._pool)
            if child.inqW_fd in up and celery_internals.process_of(self._pool, child.inqW_fd) is child
        )

    def _state_of(self, pid: int) -> ChildState:
        state = self._states.get(pid)
        if state is None:
            state = self._states[pid] = ChildState()
        return state

    def _by_pid(self, pid: int) -> Any:
        return next((child for child in celery_internals.processes(self._pool) if child.pid == pid), None)
