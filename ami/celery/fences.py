"""The port to the fences of tasks: of two runs of one task only the later one may commit."""

from typing import Any, Protocol

from celery import current_task
from celery.utils.log import get_logger
from django.db import Error

from ami.celery import database_away, staged_runs

logger = get_logger(__name__)


class FenceLost(Exception):
    """A later run of the same work has begun: roll back, this run has nothing more to do."""


class Fences(Protocol):
    """Which run of which work may commit, in a database that all workers see."""

    def begin(self, key: str, task_id: str, node: str) -> str:
        """Begin a run of the work ``key`` and return its id; the run before it may not commit any more."""

    def holds(self, key: str, run: str) -> bool:
        """Whether the run may still commit; in a transaction no later one can begin before its end."""


_fences: Fences | None = None


def connect(fences: Fences | None) -> None:
    global _fences
    _fences = fences


def begin(task: Any, kwargs: dict[str, Any]) -> None:
    """Begin a run of a fenced task; called in the process that runs it, before its code.

    Raises:
        celery.exceptions.Reject: the database is away; its message returns to its queue.
    """
    if _fences is None:
        return
    request = task.request
    key = f"{task.name}:{kwargs[task.fence_by]}" if task.fence_by in kwargs else str(request.id)
    with database_away.requeued(task, "Fenced run not begun"):
        request.antenna_run = key, _fences.begin(key, str(request.id), str(request.hostname))


def check() -> None:
    """Refuse to go on if a later run of the running task's work has begun; call it in each transaction it commits.

    One statement. Outside a task, and in one that is neither fenced nor has a policy, it does nothing.

    Raises:
        FenceLost: a later run has begun; the transaction is rolled back by it.
    """
    if staged_runs.is_lost():
        raise FenceLost("The run was taken from this process.")
    mine = getattr(current_task.request, "antenna_run", None) if current_task else None
    if mine is not None and _fences is not None and not _fences.holds(*mine):
        raise FenceLost(f"A later run of {mine[0]} has begun.")


def is_lost() -> bool:
    """Whether a later run of the running task's work has begun; False where the database does not say."""
    try:
        check()
    except FenceLost:
        return True
    except Error as error:
        logger.info("Fence not read: %s", str(error).partition("\n")[0])
    return False
