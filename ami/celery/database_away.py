"""Tells a database that is away from one that refuses a value, and returns tasks to their queue meanwhile."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery.exceptions import Reject
from celery.utils.log import get_logger
from django.db import DatabaseError, Error, InterfaceError, OperationalError

logger = get_logger(__name__)

AWAY = (OperationalError, InterfaceError)
#: A task holds its slot so long before its message returns to its queue.
PAUSE_SECONDS = 5.0
#: A table or a column is not there yet: what is to be written is taken after `migrate`.
UNMIGRATED = frozenset({"42P01", "42703"})
#: Class "program limit exceeded": a value that is too large or nested too deeply, although an OperationalError.
LIMIT = "54"


def state_of(error: BaseException) -> str:
    """Return PostgreSQL's code of an error, empty where it has none, as when no connection was made."""
    return getattr(error.__cause__, "sqlstate", None) or ""


def is_away(error: BaseException) -> bool:
    """Whether something failed for want of a database; any other error is about what was to be written."""
    state = state_of(error)
    if state.startswith(LIMIT):
        return False
    # SQLite raises the base class for a file that is damaged.
    return isinstance(error, AWAY) or type(error) is DatabaseError or state in UNMIGRATED


@contextmanager
def requeued(task: Any, what: str) -> Iterator[None]:
    """Return the running task to its queue, after a pause, where the block finds that the database is away.

    What the database refuses otherwise, it would refuse at every delivery.

    Raises:
        celery.exceptions.Reject: the database is away.
    """
    try:
        yield
    except Error as error:
        if not is_away(error):
            raise
        logger.warning("%s: %s", what, error, extra={"task": task.name, "task_id": task.request.id})
        time.sleep(PAUSE_SECONDS)
        raise Reject("the database is away", requeue=True) from error
