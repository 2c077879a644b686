"""The governor's errors: refused settings, and tasks that are ended or buried."""

from celery.exceptions import Retry


class GovernorError(ValueError):
    """A setting of the governor that has the wrong type, is out of bounds, or contradicts another."""


class PoisonTask(ValueError):
    """A task that crashed its worker twice; the text says so."""


class CeilingReached(Retry):
    """Inside a child: the kernel refused it memory. Only the parent retries or buries the task: a child that published
    its own retry could be ended for its size before it reported that, and the task would run twice.
    """

    def __str__(self) -> str:
        return f"Memory limit reached, the worker retries or buries the task: {self.exc}"


class TaskStalled(Exception):
    """A task that reports its progress stayed silent for longer than it declares."""


class StoppedByOperator(Exception):
    """An operator stopped the worker: the task's process was ended, and its message returns to the queue."""


class CancelledByOperator(Exception):
    """An operator cancelled the task, and it did not end by itself in time."""


class MemoryLimitExceeded(Exception):
    """A task took more memory than one process may have; it was ended, and its siblings were not.

    Not a ``MemoryError``: Celery 5.7 ends the whole worker on one. ``args`` are plain values, which travel between
    processes: task name, KiB used (0: unknown, the kernel refused it more), KiB allowed.
    """

    def __init__(self, task: str, used_kib: int, limit_kib: int) -> None:
        super().__init__(task, used_kib, limit_kib)
        self.task, self.used_kib, self.limit_kib = task, used_kib, limit_kib

    def __str__(self) -> str:
        used = f"took {self.used_kib} KiB of memory" if self.used_kib else "asked for more memory than it was given"
        return (
            f"{self.task} {used}; one process of this worker may have {self.limit_kib} KiB. Make the "
            "task smaller, or raise MAX_MEMORY_PER_CHILD_KIB and the container's memory of its queue."
        )

    def __repr__(self) -> str:
        """Return the sentence: Celery logs and reports the representation of an error."""
        return f"{type(self).__name__}({str(self)!r})"
