"""Keeps the database connection usable after a soft time limit, which may be raised inside a query."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from billiard.exceptions import SoftTimeLimitExceeded
from django.db import connection

logger = logging.getLogger(__name__)


@contextmanager
def cancel_query_on_soft_limit() -> Iterator[None]:
    """Cancel the running query and reset the connection when a soft time limit leaves the block.

    psycopg leaves the connection waiting for the interrupted query's answer: every further command fails with "another
    command is already in progress" (incident 35). PostgreSQL continues the query and keeps its locks even after the
    connection is closed, so the query is cancelled.
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
    """Close the connection, so that the next query opens a new one; inside an atomic block, its end does this."""
    if not connection.in_atomic_block:
        connection.close()


def _cancel_of_connection() -> Any:
    """Return a libpq cancel object, usable even after the connection is closed; None on SQLite."""
    if connection.vendor != "postgresql":
        return None
    connection.ensure_connection()
    return connection.connection.pgconn.get_cancel()


def _cancel_quietly(cancel: Any) -> None:
    try:
        cancel.cancel()
    except connection.Database.Error as error:
        logger.warning("Cancelling an interrupted query failed: %s", error)
