"""Ends what a stopped worker's children run, and replaces those of a restarted worker one after the other."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

from ami.celery import task_progress
from ami.governor.errors import CancelledByOperator, StoppedByOperator, TaskStalled
from ami.governor.probes import identity

logger = get_logger(__name__)

#: A child that has not ended after SIGTERM gets SIGKILL after this time.
KILL_SECONDS = 10.0
CHECK_SECONDS = 0.1
#: A cancelled task that runs may end by itself for so long.
CANCEL_SECONDS = 30.0


class ChildControl:
    """All methods run on the thread of the worker's loop. ``adapter`` is the governor's view of the pool, or None."""

    def __init__(self, call_later: Callable[..., Any]) -> None:
        self._call_later = call_later
        self._first_seen: dict[tuple[int, int], float] = {}
        self._replacing: tuple[int, int] | None = None

    def stop_tasks(self, adapter: Any) -> None:
        """Send SIGTERM to every child that runs a task, and later SIGKILL.

        When it has ended, the messages of tasks that are acknowledged late return to their queue, flagged as
        redelivered.
        """
        for request in tuple(state.active_requests):
            pid = request.worker_pid
            if not pid or pid == os.getpid() or getattr(request, "is_stopped", False):
                continue
            request.is_stopped = True
            with suppress(ProcessLookupError):
                started = identity.start_ticks(pid)
                os.kill(pid, signal.SIGTERM)
                self._call_later(CHECK_SECONDS, self._settle, adapter, pid, started, time.monotonic() + KILL_SECONDS)
                fields = {"task": request.name, "task_id": request.id, "child": pid}
                logger.warning("Worker stopped by an operator; task ended and its message requeued", extra=fields)

    def cancel_tasks(self, adapter: Any, ids: frozenset[str]) -> None:
        """Send tasks that run the signal of their soft time limit, once; what goes on is ended after a while.

        A task that ends by itself is settled as it ended; if it asked for a retry, that is dropped when it is received.
        """
        for request in tuple(state.active_requests):
            pid = request.worker_pid
            if request.id not in ids or not pid or getattr(request, "is_cancelled", False):
                continue
            request.is_cancelled = True
            if adapter.interrupt(pid):
                fields = {"task": request.name, "task_id": request.id, "child": pid}
                logger.warning("Task cancelled by an operator; it gets %g s to end", CANCEL_SECONDS, extra=fields)
                self._call_later(CANCEL_SECONDS, self._end_cancelled, adapter, request)

    @staticmethod
    def _end_cancelled(adapter: Any, request: Any) -> None:
        if request in state.active_requests:
            adapter.fail(request.worker_pid, CancelledByOperator("the task was cancelled"))

    def end_stalled(self, adapter: Any) -> None:
        """End every task that has reported its progress once and then stayed silent for longer than it declares."""
        watched = [each for each in tuple(state.active_requests) if getattr(each.task, "stall_seconds", 0)]
        reports = task_progress.read([request.worker_pid for request in watched if request.worker_pid])
        for request in watched:
            report, most = reports.get(request.worker_pid), request.task.stall_seconds
            if report is None or report.task_id != request.id or time.time() - report.at < most:
                continue
            fields = {"task": request.name, "task_id": request.id, "progress": report.text, "silent_seconds": most}
            logger.error("Task stalled, ending it", extra=fields)
            adapter.fail(request.worker_pid, TaskStalled(f"silent for {most} s after '{report.text}'"))

    def restart(self, adapter: Any, before: float, now: float) -> bool:
        """Replace one child that started before ``before``; return whether there is one. Times are epoch seconds.

        The next one is replaced when that one has gone: the pool is never more than one child short for it.
        """
        children = self._note(adapter, now)
        if self._replacing in children:
            return True
        old = [child for child in children if self._first_seen[child] < before]
        if not old or not adapter.has_children:
            return bool(old)
        idle = set(adapter.idle_pids)
        self._replacing = min(old, key=lambda child: (child[0] not in idle, self._first_seen[child]))
        adapter.recycle(self._replacing[0], "restart")
        return True

    def note(self, adapter: Any, now: float) -> None:
        """Remember since when each child is there."""
        self._note(adapter, now)

    def _note(self, adapter: Any, now: float) -> list[tuple[int, int]]:
        children = started(adapter.pids)
        self._first_seen = {child: self._first_seen.get(child, now) for child in children}
        return children

    def _settle(self, adapter: Any, pid: int, started_at: int, kill_at: float) -> None:
        """Settle the task of a child that has ended; kill one that has not in time."""
        if is_there(pid, started_at):
            if time.monotonic() >= kill_at:
                os.kill(pid, signal.SIGKILL)
            self._call_later(CHECK_SECONDS, self._settle, adapter, pid, started_at, kill_at)
        elif adapter is not None:  # Without one Celery notices the lost child itself, ten seconds later.
            adapter.fail(pid, StoppedByOperator("the worker was stopped"))


def is_there(pid: int, started_at: int) -> bool:
    """Whether the process with this pid and start time is there and has not ended."""
    try:
        return identity.start_ticks(pid) == started_at and identity.state(pid) != "Z"
    except ProcessLookupError:
        return False


def started(pids: list[int]) -> list[tuple[int, int]]:
    """Return each process that is there with its start time in clock ticks."""
    children = []
    for pid in pids:
        with suppress(ProcessLookupError, OSError):
            children.append((pid, identity.start_ticks(pid)))
    return children
