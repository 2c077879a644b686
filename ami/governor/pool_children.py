"""The processes of a prefork pool: which may take a task now, what each runs, and how one is recycled or ended."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from billiard.einfo import ExceptionInfo
from billiard.pool import DEATH, READY
from celery.concurrency.asynpool import WORKER_UP, AsynPool

from ami.governor.errors import CeilingReached, MemoryLimitExceeded
from ami.governor.probes import process

#: A child that has run as many tasks as it may ends by itself.
LEAVES_BY_ITSELF = "max-tasks"

#: The pool looks for children that have ended every 5 s, and when it is told; a dismissed one is replaced sooner.
REAP_SECONDS = 0.1

#: An idle child that has not left by then is deaf to being asked, and killed.
LEAVE_SECONDS = 10.0


@dataclass
class Kept:
    """What the parent remembers of one child."""

    fresh_kib: int = 0
    tasks: int = 0
    leaving: str = ""
    cooling_until: float = 0.0
    resident: process.Resident | None = None


class Children:
    """The children of Celery's asynchronous prefork pool, whose parent alone hands out work.

    The parent decides after each task whether the child goes on, rests (``cooldown_seconds``) or is recycled, before
    the message of that task is acknowledged: so the worker's slots are lowered in time, and no message arrives for a
    process that is not there. ``changed`` is called when a child has become ready or stopped being so. All methods run
    on the thread of the worker's loop.
    """

    def __init__(self, pool: AsynPool, changed: Callable[[], None], call_later: Callable[..., Any]) -> None:
        self._pool, self._changed, self._call_later = pool, changed, call_later
        self._kept: dict[int, Kept] = {}
        self.soft_kib = 0
        self.max_tasks = pool._maxtasksperchild or 0
        self.cooldown_seconds = 0.0
        self.single_job = False
        self.recycled: dict[str, int] = {}
        handlers = pool._result_handler.state_handlers
        handlers[READY] = self._around_ready(handlers[READY])
        handlers[WORKER_UP] = self._after_up(handlers[WORKER_UP])
        handlers[DEATH] = self._instead_of_death(handlers[DEATH])

    # --- what is there ------------------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """How many children run a task or could take one now."""
        now = time.monotonic()
        return sum(1 for child in self._up() if not self._kept_of(child.pid).leaving and not self._rests(child, now))

    def idle(self) -> list[int]:
        """The children that run nothing and are not about to."""
        now, busy = time.monotonic(), self._pool._busy_workers
        return [child.pid for child in self._up() if child.inqW_fd not in busy or self._rests(child, now)]

    def busy(self) -> dict[int, Any]:
        """The pool's job of each child that has begun one."""
        jobs = (job for job in self._pool._cache.values() if job._worker_pid and not job.ready())
        return {job._worker_pid: job for job in jobs}

    def fresh_kib(self, pid: int) -> int:
        """What the child had right after it had started."""
        return self._kept_of(pid).fresh_kib

    def used(self, pid: int) -> bool:
        """Whether the child has run a task."""
        return self._kept_of(pid).tasks > 0

    def leaving(self, pid: int) -> bool:
        """Whether the child is to be recycled, or is being."""
        return bool(self._kept_of(pid).leaving)

    # --- what is done -------------------------------------------------------------------------------------------

    def before_loop(self) -> None:
        """Make a pool that lived through a lost connection fit for the next loop.

        Celery 5.7 stops watching a child when its end of the pipe closes, a moment before the child can be reaped. A
        loop that registers the pool in that moment ends the worker with "file descriptor is None" (seen).
        """
        now = time.monotonic()
        for child in self._pool._pool:
            if vars(child).get("_sentinel_poll", self) is None:
                del child._sentinel_poll
            if self._rests(child, now) or self.leaving(child.pid):
                # The pool has forgotten who is not to be given a task.
                self._pool._busy_workers.add(child.inqW_fd)

    def recycle(self, pid: int, why: str) -> None:
        """Replace the child: now when it is idle, after its task when it is not. ``why`` is one word for the count."""
        kept, child = self._kept_of(pid), self._by_pid(pid)
        if child is None or kept.leaving:
            return
        self._mark(kept, why)
        if child.inqW_fd not in self._pool._busy_workers or self._rests(child, time.monotonic()):
            self._dismiss(child)

    def interrupt(self, pid: int) -> bool:
        """Send the child's task the signal of a soft time limit; return whether it ran one."""
        if pid not in self.busy():
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
        return True

    def end(self, pid: int, task: str, used_kib: int, limit_kib: int) -> bool:
        """End the child, and its task with :class:`MemoryLimitExceeded`, as a hard time limit does with its error."""
        job, child = self.busy().get(pid), self._by_pid(pid)
        if job is None or child is None:
            return False
        kept = self._kept_of(pid)
        kept.leaving = kept.leaving or "ended"
        try:
            raise MemoryLimitExceeded(task, used_kib, limit_kib)
        except MemoryLimitExceeded:
            outcome = ExceptionInfo()
        child._controlled_termination = True
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        job._set(job._job, (False, outcome))
        return True

    # --- between tasks ------------------------------------------------------------------------------------------

    def _around_ready(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        def on_ready(job: int, i: Any, result: Any, fd: int) -> None:
            child = self._pool._fileno_to_inq.get(fd)
            stays = child is None or self._stays(child, result)
            if not stays:
                self._changed()  # Before the handler, which settles the message and so asks for the next one.
            handler(job, i, result, fd)
            if not stays:
                self._keep_away(child)

        return on_ready

    def _stays(self, child: Any, result: Any) -> bool:
        """Decide whether the child whose task is over may take the next one at once."""
        kept = self._kept_of(child.pid)
        kept.tasks += 1
        if _reached_ceiling(result):
            self._mark(kept, "ceiling")
        if self.max_tasks and kept.tasks >= self.max_tasks:
            kept.leaving = LEAVES_BY_ITSELF
        elif not kept.leaving and (why := self._outgrown(child.pid)):
            self._mark(kept, why)
        if not kept.leaving and self.cooldown_seconds:
            kept.cooling_until = time.monotonic() + self.cooldown_seconds
            self._call_later(self.cooldown_seconds, self._rested, child)
            return False
        return not kept.leaving

    def _mark(self, kept: Kept, why: str) -> None:
        kept.leaving = why
        self.recycled[why] = self.recycled.get(why, 0) + 1

    def _keep_away(self, child: Any) -> None:
        """Let no task reach a child that rests or leaves: the pool writes to those alone that it holds for free."""
        self._pool._busy_workers.add(child.inqW_fd)
        leaving = self._kept_of(child.pid).leaving
        if leaving == LEAVES_BY_ITSELF:
            self._call_later(LEAVE_SECONDS, self._kill, child)
        elif leaving:
            self._dismiss(child)

    def _outgrown(self, pid: int) -> str:
        if self.single_job:
            return "single-job"
        if not self.soft_kib:
            return ""
        resident = self._kept_of(pid).resident
        with suppress(OSError):
            # What is resident bounds PSS from above and costs a thousandth of it.
            if resident and resident.kib() > self.soft_kib and process.pss_kib(pid) > self.soft_kib:
                return "soft-limit"
        return ""

    def _after_up(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        def on_up(pid: int) -> None:
            handler(pid)
            kept = self._kept[pid] = Kept()
            with suppress(OSError):
                kept.fresh_kib = process.pss_kib(pid)
                kept.resident = process.Resident(pid)
            for gone in set(self._kept) - {child.pid for child in self._pool._pool}:
                if resident := self._kept.pop(gone).resident:
                    resident.close()
            self._changed()

        return on_up

    def _instead_of_death(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """A child that says it ends has cleaned up; billiard would let it sleep for another second."""

        def on_death(pid: int, exitcode: int | None) -> None:
            if not self._kept_of(pid).leaving:
                handler(pid, exitcode)
                return
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        return on_death

    def _rested(self, child: Any) -> None:
        kept = self._kept_of(child.pid)
        if time.monotonic() + 0.01 < kept.cooling_until:
            return
        kept.cooling_until = 0.0
        if child in self._up() and not kept.leaving:
            self._pool._busy_workers.discard(child.inqW_fd)
        self._changed()

    def _dismiss(self, child: Any) -> None:
        """End an idle child; the pool replaces it."""
        self._pool._busy_workers.add(child.inqW_fd)
        with suppress(OSError):
            child.terminate_controlled()
        self._call_later(REAP_SECONDS, self._pool.maintain_pool)
        self._call_later(LEAVE_SECONDS, self._kill, child)

    def _kill(self, child: Any) -> None:
        """End a child that was told to leave and has not: its place would stay empty for ever."""
        if self._by_pid(child.pid) is child:
            with suppress(OSError):
                os.kill(child.pid, signal.SIGKILL)

    def _rests(self, child: Any, now: float) -> bool:
        return self._kept_of(child.pid).cooling_until > now

    def _up(self) -> Iterator[Any]:
        up = self._pool._all_inqueues
        return (child for child in self._pool._pool if child.inqW_fd in up and self._is_of(child))

    def _is_of(self, child: Any) -> bool:
        """Whether the queue's descriptor is this child's own, and not one that a replacement took over."""
        return self._pool._fileno_to_inq.get(child.inqW_fd) is child

    def _kept_of(self, pid: int) -> Kept:
        kept = self._kept.get(pid)
        if kept is None:
            kept = self._kept[pid] = Kept()
        return kept

    def _by_pid(self, pid: int) -> Any:
        return next((child for child in self._pool._pool if child.pid == pid), None)


def _reached_ceiling(result: Any) -> bool:
    """Whether a task's outcome, as its child sent it, is that the kernel refused it memory."""
    _, value = result
    if not isinstance(value, tuple) or not value or not value[0]:
        return False
    error = getattr(value[1], "exception", None)
    return isinstance(getattr(error, "exc", error), CeilingReached) or isinstance(error, CeilingReached)
