"""Gives a statement up that the database does not answer: a server that is frozen acknowledges packets, and cancels
nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db.backends.signals import connection_created
from django.dispatch import receiver

#: Of each connection that this process opens, in seconds; None: its statements may take any time, as those of tasks.
_seconds: float | None = None
#: The attribute of Django's connection with a limit of its own.
OWN = "antenna_answer_seconds"


def limit(seconds: float) -> None:
    """Limit the statements of the connections that this process opens from now on."""
    global _seconds
    _seconds = seconds


def limit_of(connection: Any, seconds: float) -> None:
    """Limit the statements of one connection of Django's that is not open yet."""
    setattr(connection, OWN, seconds)


@receiver(connection_created, dispatch_uid="answer_limits")
def _limit(connection: Any, **_: Any) -> None:
    seconds = vars(connection).get(OWN, _seconds)
    if seconds is not None and connection.vendor == "postgresql":
        link = connection.connection
        link.wait = partial(_wait, link.wait, link.close, seconds)


def _wait(
    wait: Callable[..., Any],
    close: Callable[[], None],
    seconds: float,
    statement: Any,
    interval: float = 0.1,
    timeout: float | None = None,
) -> Any:
    """Wait as psycopg's connection does, and close the connection when that takes too long.

    Raises:
        psycopg.OperationalError: the server did not answer.
    """
    import psycopg  # Not where the database is SQLite.

    try:
        return wait(statement, interval, seconds if timeout is None else timeout)
    except psycopg.OperationalError as error:
        if timeout is not None or "wait timeout" not in str(error):
            raise
        close()
        raise psycopg.OperationalError(f"timeout: no answer within {seconds:g} s") from None
