"""Clears the tracebacks of failed tasks when the task is over: they hold every local variable of their frames.

Celery's tracer keeps the error in a frame that the error's own traceback refers to. Only the collector of cycles ends
that, and in a process that does little else it comes late: meanwhile each failure keeps its body. Celery clears the
frames, but before Python 3.13 not the copies of their variables that ``billiard`` had made for its own traceback, and
never the frames of the error behind a retry.
"""

from collections.abc import Iterator
from typing import Any

from celery.signals import task_postrun


def clear(error: object) -> None:
    """Remove the traceback of an error and of every error behind it; other objects are left alone.

    What was formatted from it, as text or as ``ExceptionInfo``, stays as it is.
    """
    for each in behind(error):
        each.__traceback__ = None


def behind(error: object) -> Iterator[BaseException]:
    """Yield an error and every error behind it; nothing for another object."""
    waiting, seen = [error], set()
    while waiting:
        error = waiting.pop()
        if isinstance(error, BaseException) and id(error) not in seen:
            seen.add(id(error))
            yield error
            waiting += [error.__cause__, error.__context__, getattr(error, "exc", None)]
            if isinstance(error, BaseExceptionGroup):
                waiting += error.exceptions


@task_postrun.connect(dispatch_uid="antenna_tracebacks")
def _after_task(retval: Any = None, **_: Any) -> None:
    """Clear the outcome of a task: by now it is logged, stored and reported."""
    clear(retval)
