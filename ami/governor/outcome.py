"""What a child reports about its task's end, where that end is a shortage of memory."""

from typing import Any

from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from celery.exceptions import Retry

from ami.governor.errors import CeilingReached, MemoryLimitExceeded


def as_einfo(error: Exception) -> ExceptionInfo:
    """Return what the pool would report had a task failed with ``error``."""
    try:
        raise error
    except type(error):
        return ExceptionInfo()


def reached_ceiling(result: Any, ceiling_kib: int = 0) -> bool:
    """Whether a task's outcome, as its child sent it, is that the kernel refused it memory.

    ``ceiling_kib`` 0: its process has no memory limit, and a ``MemoryError`` says nothing about it. A task may ask for
    its retry by itself.
    """
    error = _error(result)
    cause = error.exc if isinstance(error, Retry) else error
    return isinstance(error, CeilingReached) or bool(ceiling_kib and isinstance(cause, MemoryError))


def without_memory_error(result: Any, task: str, ceiling_kib: int) -> Any:
    """Return the outcome with a ``MemoryError`` replaced by `MemoryLimitExceeded`: Celery 5.7 ends the whole worker on
    the first, and fails the task on the second. A retry that the task asked for is published already, and stays one.
    """
    if not isinstance(_error(result), MemoryError):
        return result
    ok, (failed, _, *rest) = result
    return ok, (failed, as_einfo(MemoryLimitExceeded(task, 0, ceiling_kib)), *rest)


def _error(result: Any) -> Any:
    """Return the exception with which a task failed, or None."""
    _, value = result
    if not isinstance(value, tuple) or not value or not value[0]:
        return None
    error = getattr(value[1], "exception", None)
    return error.exc if isinstance(error, ExceptionWithTraceback) else error
