"""The database connection after a soft time limit, which is raised wherever the code is: also inside a query."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from billiard.exceptions import SoftTimeLimitExceeded
from django.db import connection

logger = logging.getLogger(__name__)


@contextmanager
def cancel_query_on_soft_limit() -> Iterator[None]:
    """Let a soft time limit out of the block only with no query left running and a connection that works.

    psycopg leaves a connection whose query was cut off waiting for that query's answer, and every further command on it
    fails with "another command is already in progress" (incident 35). PostgreSQL goes on with the query, and keeps its
    locks, also after the connection is closed; so it is cancelled.
    """
    cancel = _cancel_of_connection()
    try:
        yield
    except SoftTimeLimitExceeded:
        if cancel is not None:
            _cancel_quietly(cancel)
        reset_connection()
        raise


def reset_connection() -> None:
    """Close the connection, so that the next query gets a fresh one; inside an atomic block its end does that."""
    if not connection.in_atomic_block:
        connection.close()


def _cancel_of_connection() -> Any:
    """Return what cancels the connection's query, also once the connection itself is closed; None on SQLite."""
    if connection.vendor != "postgresql":
        return None
    connection.ensure_connection()
    return connection.connection.pgconn.get_cancel()


def _cancel_quietly(cancel: Any) -> None:
    try:
        cancel.cancel()
    except connection.Database.Error as error:
        logger.warning("Could not cancel a query that was cut off: %s", error)
