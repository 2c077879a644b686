"""Whether a database connection may serve another task, and how it is dropped where that is in doubt (incident 35)."""

import select
import time
from collections.abc import Iterator
from typing import Any

from celery.utils.log import get_logger
from django.db import DatabaseError, InternalError, OperationalError, connections
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from ami.celery import outages

logger = get_logger(__name__)

#: A connection that was idle for longer is checked with a statement by its next use; before, its socket is looked at.
CHECK_AFTER_SECONDS = 5.0

#: The attribute of Django's connection with the time of its last task's end, on the monotonic clock.
_USED_AT = "antenna_used_at"

#: PostgreSQL's code of a write that a read-only server refuses: a standby, or a primary during a failover.
READ_ONLY = "25006"


def _write_elsewhere(execute: Any, sql: Any, params: Any, many: Any, context: dict[str, Any]) -> Any:
    """Close the connection to a server that became read-only: it stays so for as long as the connection lives.

    Raises:
        django.db.OperationalError: it is; the next use of the connection opens another one, to the new primary.
    """
    try:
        return execute(sql, params, many, context)
    except InternalError as error:
        if getattr(error.__cause__, "sqlstate", None) != READ_ONLY:
            raise
        context["connection"].close()  # Within a transaction Django opens no other one before its end.
        raise OperationalError(*error.args) from error.__cause__


@receiver(connection_created, dispatch_uid="database_connections.read_only")
def _watch_writes(connection: Any, **_: Any) -> None:
    outages.answered(outages.DATABASE)
    if _write_elsewhere not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, _write_elsewhere)  # A block that has added one removes the last.


def before_task() -> None:
    """Drop or close what this thread's next task may not use, and have checked what was idle for a while."""
    for connection in _usable():
        if time.monotonic() - vars(connection).get(_USED_AT, 0.0) > CHECK_AFTER_SECONDS:
            connection.health_check_done = False  # Django's: the next cursor asks the database first.


def after_task() -> None:
    """Keep this thread's connections for its next task, except those in doubt and old ones."""
    for connection in _usable():
        setattr(connection, _USED_AT, time.monotonic())


def drop_in_doubt() -> None:
    """Drop this thread's connections that are in doubt, so that what handles an error gets a new one."""
    for connection in _open():
        if is_in_doubt(connection):
            drop(connection)


def _usable() -> Iterator[Any]:
    drop_in_doubt()
    for connection in _open():
        if _is_old(connection):
            connection.close()
        else:
            yield connection


def is_in_doubt(connection: Any) -> bool:
    """Whether an open connection may be in the middle of something, or broken.

    A statement or a transaction was left unfinished (a soft time limit raises anywhere), a statement failed with more
    than bad data, the server has something to say without having been asked (that it ended the connection), or it takes
    no writes.
    """
    if connection.in_atomic_block or connection.closed_in_transaction or connection.errors_occurred:
        return True
    if connection.autocommit != connection.settings_dict["AUTOCOMMIT"]:
        return True
    if connection.vendor == "postgresql":
        return _is_unfinished(connection.connection) or _is_read_only(connection.connection)
    return bool(getattr(connection.connection, "in_transaction", False))


def _is_unfinished(link: Any) -> bool:
    """Whether a connection of psycopg is closed, in a statement or transaction, or has unread input."""
    from psycopg.pq import ConnStatus, TransactionStatus

    libpq = link.pgconn
    if libpq.status != ConnStatus.OK or libpq.transaction_status != TransactionStatus.IDLE:
        return True
    readable = select.poll()
    readable.register(libpq.socket, select.POLLIN)
    return bool(readable.poll(0))


def _is_read_only(link: Any) -> bool:
    """Whether the server reports that it refuses writes; it does so by itself since PostgreSQL 14."""
    return "on" in map(link.info.parameter_status, ("in_hot_standby", "default_transaction_read_only"))


def drop(connection: Any) -> None:
    """End a connection and forget it; the next statement of this thread opens a new one.

    PostgreSQL continues a statement and keeps its locks after its connection is closed, so the statement is cancelled.
    Django's connection itself is replaced, too: one that was left inside an atomic block would never commit again.
    """
    logger.info("Database connection dropped: its state is in doubt", extra={"database": connection.alias})
    try:
        if connection.vendor == "postgresql":
            _cancel(connection.connection)
        connection.connection.close()
    except (DatabaseError, connection.Database.Error, OSError) as error:
        logger.warning("Closing a database connection failed: %s", error, extra={"database": connection.alias})
    finally:
        del connections[connection.alias]


def _cancel(link: Any) -> None:
    from psycopg.pq import TransactionStatus

    if link.pgconn.transaction_status == TransactionStatus.ACTIVE:
        link.pgconn.get_cancel().cancel()


def _is_old(connection: Any) -> bool:
    """Whether ``CONN_MAX_AGE`` is over."""
    return connection.close_at is not None and time.monotonic() >= connection.close_at


def _open() -> list[Any]:
    return [each for each in connections.all(initialized_only=True) if each.connection is not None]
