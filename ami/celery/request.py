"""How a delivered message is settled: acknowledged, retried, or buried in its queue's dead letters."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from billiard.common import human_status
from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.request import Request as CeleryRequest
from celery.worker.state import task_ready

from ami.celery import attempts, disabled, sensitive, staged_calls, task_counts, task_times, tick_ends, tracebacks
from ami.celery.failures import in_parent
from ami.celery.staged_calls import End, Next
from ami.celery.time_limits import TimeLimits, of_call
from ami.governor.errors import CancelledByOperator, CeilingReached, MemoryLimitExceeded, StoppedByOperator, TaskStalled

logger = get_logger(__name__)


#: What the pool reports of a process that has been ended or is about to be.
_ENDING: tuple[type[BaseException], ...] = (CancelledByOperator, MemoryLimitExceeded, StoppedByOperator)
_ENDING += (TaskStalled, TimeLimitExceeded, WorkerLostError)

#: How the pool names the end of a child that SIGTERM killed, in the text of a ``WorkerLostError``.
_TERMINATED = human_status(-signal.SIGTERM)


class TaskMemoryError(Exception):
    """A task raised ``MemoryError``. No subclass of it, because Celery ends the whole worker on a ``MemoryError``."""


class Request(CeleryRequest):
    """A request whose failures end in the dead-letter queue, never in a lost or an endlessly redelivered message.

    - An ordinary failure, its retries used up: rejected without requeue (``task_acks_on_failure=False``).
    - A hard time limit: counts as a retry; when none is left it is buried. Celery alone would requeue it until the
      broker's delivery limit.
    - A task that stalls: like a hard time limit.
    - A lost child process: ``task_retry_on_worker_lost``, capped by the task's retries, then buried.
    - A memory limit: the same as a hard time limit, but after 1, 2, 4, ... seconds, at most the task's retry delay:
      the next process starts empty.
    - An operator who stops the worker: requeued, flagged as redelivered. So is the task of a child that SIGTERM killed,
      or that is lost while the worker stops: systemd and ``kill -- -PGID`` send the signal to the children, too.
    - An operator who cancels the task: acknowledged.
    - A ``MemoryError`` of the task: an ordinary failure of that task.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Count what succeeds: Celery makes a class with its own ``on_success`` for each task."""
        super().__init_subclass__(**options)
        if (settle := cls.__dict__.get("on_success")) is not None:
            cls.on_success = _counting(settle)

    #: Whether what became of its run has been noted, and whether its process was ended.
    _is_settled = _ends_process = False

    #: The hard and the soft one.
    time_limits: tuple[float | None, float | None]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        staged_calls.mark(self._request_dict)
        conf = self.app.conf
        limits = of_call(self.time_limits, self.task, TimeLimits(conf.task_soft_time_limit, conf.task_time_limit))
        self.time_limits = limits.hard, limits.soft

    def _settle(self, end: End, following: Next | None = None) -> None:
        """Note what became of a message that was sent for a run; the first note counts."""
        if self._is_settled or not staged_calls.is_of_run(self._request_dict):
            return
        self._is_settled = True
        pid = int(self.worker_pid or 0) if self._ends_process else 0
        delivery = str(self._request_dict[staged_calls.DELIVERY])
        run = self._request_dict[staged_calls.RUN_HEADER]
        staged_calls.note(staged_calls.Note(run, delivery, end, following, pid, self.name, self.id))

    def _note_end(self, *how: Any) -> None:
        task_times.ended(self, *how)
        attempts.note_end(self)

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """Note that the pool has begun it."""
        super().on_accepted(pid, time_accepted)
        task_times.started(self)

    def on_retry(self, exc_info: Any) -> None:
        super().on_retry(exc_info)
        self._settle(End.RETURNED, Next(retries=int(self._context.retries or 0) + 1))
        self._note_end(task_times.RETRIED)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """Settle a failed task; see the class."""
        exception = exc_info.exception
        if isinstance(exception, ExceptionWithTraceback):
            exception = exception.exc
        if isinstance(exception, CeilingReached):
            exception = exception.exc
            exc_info, return_ok = _as_own(exception), False  # The child has neither stored nor reported a failure.
        else:
            self._ends_process = isinstance(exception, _ENDING)
        was_cancelled = self._was_cancelled(exception)
        was_stopped = bool(self.task.acks_late) and self._was_stopped(exception)
        if not was_stopped and not was_cancelled:
            in_parent.note(self, exception)
        if isinstance(exception, MemoryError):
            exc_info = _as_own(TaskMemoryError(str(exception) or "the task ran out of memory"), exception)
        elif was_stopped:
            self.reject(requeue=True)
            task_ready(self)
            return
        elif was_cancelled:
            self.acknowledge()
            self._settle(End.DISCARDED)
            tick_ends.note(self)
            attempts.note_end(self)
            self.send_event("task-revoked", terminated=True, signum="KILL", expired=False)
            task_ready(self)
            return
        elif isinstance(exception, (TimeLimitExceeded, MemoryLimitExceeded, TaskStalled)) and self.task.acks_late:
            if self._retry_after_limit(exception, exc_info):
                return
            self.reject(requeue=False)
        super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        self._settle(End.FAILED)

    def info(self, safe: bool = False) -> dict[str, Any]:
        """Return what ``inspect active`` shows; without the values of sensitive arguments."""
        found: dict[str, Any] = super().info(safe=safe)
        if not safe and (shown := sensitive.masked(self.app, self.name, found["args"], found["kwargs"])):
            found["args"], found["kwargs"] = shown
        return found

    @property
    def request_dict(self) -> dict[str, Any]:
        """What the pool gets of the message's headers."""
        return disabled.marked(self, super().request_dict)

    def reject(self, requeue: bool = False) -> None:
        """Reject the message; one that is buried has ended."""
        if not requeue and not self.acknowledged:
            tick_ends.note(self)
            task_counts.note(self.delivery_info, completed=False)
            self._note_end(task_times.FAILED)
        elif requeue:
            attempts.note_end(self)
        super().reject(requeue=requeue)
        self._settle(End.RETURNED if requeue else End.FAILED)

    def _was_stopped(self, exception: BaseException) -> bool:
        """Whether a stop ended the task, not its own fault; a child may die before its parent handles the signal."""
        if not isinstance(exception, WorkerLostError) or self._was_cancelled(exception):
            return isinstance(exception, StoppedByOperator)
        stops = state.should_stop, state.should_terminate  # Exit codes, which may be 0.
        is_stopping = any(stop is not None and stop is not False for stop in stops)
        return is_stopping or getattr(self, "is_stopped", False) or _TERMINATED in str(exception)

    def _was_cancelled(self, exception: BaseException) -> bool:
        is_lost = isinstance(exception, WorkerLostError) and getattr(self, "is_cancelled", False)
        return is_lost or isinstance(exception, CancelledByOperator)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Log a time limit; a hard one was settled by ``on_failure`` when the pool reported it."""
        if not soft and self.acknowledged:
            fields = {"task": self.name, "task_id": self.id, "limit_seconds": timeout, "worker": self.hostname}
            logger.error("Hard time limit exceeded", extra=fields)
            return
        super().on_timeout(soft, timeout)

    def _retry_worker_lost(self, exc: BaseException, exc_info: Any) -> bool:
        is_retried = bool(super()._retry_worker_lost(exc, exc_info))
        if is_retried:
            delay, retries = self.task.default_retry_delay, int(self._context.retries or 0) + 1
            following = Next(retries=retries, due=time.time() + delay if delay else 0.0)
            self._settle(End.RETURNED, following)
            self._note_end(task_times.RETRIED)
        return is_retried

    def _announce_cancelled(self, emit_retry: bool = True) -> None:
        """Announce a task that was ended because its connection was lost; store that only where its result is read.

        This runs in the worker's loop, and the result backend may be unreachable as well: for an ignored result the
        loop would wait for minutes before it connects to the broker again.
        """
        super()._announce_cancelled(emit_retry=emit_retry and self.store_errors)
        self._ends_process = True
        self._settle(End.RETURNED)

    def _announce_revoked(self, *args: Any, **options: Any) -> None:
        """Announce a task that was revoked or has expired, also one that runs."""
        super()._announce_revoked(*args, **options)
        self._ends_process = self.time_start is not None
        self._settle(End.DISCARDED)

    def _retry_after_limit(self, exception: BaseException, exc_info: Any) -> bool:
        limit = self.task.max_retries
        if limit is not None and self._context.retries >= limit:
            return False
        delay = self.task.default_retry_delay
        soon = isinstance(exception, MemoryLimitExceeded)
        with _retry_delay(self.task, min(2**self._context.retries, delay) if soon else delay):
            if not self._retry_worker_lost(exception, exc_info):
                return False
        task_ready(self)
        return True


def _counting(settle: Any) -> Any:
    def on_success(self: Any, result: Any, **options: Any) -> Any:
        if not result[0]:
            task_counts.note(self.delivery_info, completed=True)
            self._note_end(task_times.SUCCEEDED, result[2])
        try:
            return settle(self, result, **options)
        finally:
            if not result[0]:
                self._settle(End.DONE)

    return on_success


@contextmanager
def _retry_delay(task: Any, seconds: float) -> Iterator[None]:
    """Let Celery's retry of an ended task wait so long: it knows the task's default delay only."""
    before = task.default_retry_delay
    task.default_retry_delay = seconds
    try:
        yield
    finally:
        task.default_retry_delay = before


def _as_own(error: Exception, cause: BaseException | None = None) -> ExceptionInfo:
    """Return what the pool would report had the task failed with ``error``."""
    try:
        raise error from cause
    except type(error):
        return ExceptionInfo()
    finally:
        tracebacks.clear(error)
