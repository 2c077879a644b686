"""Names in a few words why a connection failed, without any part of its URL."""

import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

ANSWER_SECONDS = 3.0

SILENT = f"no answer within {ANSWER_SECONDS:g} s"
UNKNOWN = "the name is not known"
REFUSED = "connection refused"
LOGIN = "the login is refused"
MISSING = "there is no such database or role"
STARTING = "it is still starting"
STOPPING = "it is shutting down"
FULL = "it has no connection left"
READ_ONLY = "it accepts no writes"
UNREACHABLE = "its network cannot be reached"
SLOW = "a statement took too long"

KINDS = (
    (socket.gaierror, UNKNOWN),
    (TimeoutError, SILENT),
    (ConnectionRefusedError, REFUSED),
    (ssl.SSLError, "TLS fails; is the certificate trusted here, and does it speak TLS?"),
)

#: What libraries and servers write, in small letters, and what it means.
SIGNS = (
    ("vhost", "there is no such virtual host for this login"),
    ("access_refused", LOGIN),
    ("invalid username-password pair", LOGIN),
    ("authentication required", LOGIN),
    ("password authentication failed", LOGIN),
    ("wrongpass", LOGIN),
    ("noauth", LOGIN),
    ("no password supplied", LOGIN),
    ("no pg_hba.conf entry", LOGIN),
    ("failed to resolve host", UNKNOWN),
    ("could not translate host name", UNKNOWN),
    ("too many clients", FULL),
    ("too many connections", FULL),
    ("connection slots are reserved", FULL),
    ("max number of clients reached", FULL),
    ("read-only transaction", READ_ONLY),
    ("read only replica", READ_ONLY),
    ("oom command not allowed", "its memory is full"),
    ("canceling statement", SLOW),
    ("lock timeout", SLOW),
    ("does not exist", MISSING),
    ("system is starting up", STARTING),
    ("not yet accepting connections", STARTING),
    ("in recovery mode", STARTING),
    ("shutting down", STOPPING),
    ("due to administrator command", "it ended the connection"),
    ("loading the dataset", "it is still reading its data"),
    ("no route to host", UNREACHABLE),
    ("network is unreachable", UNREACHABLE),
    ("connection refused", REFUSED),
    ("timeout", SILENT),
    ("timed out", SILENT),
    ("closed", "it closed the connection"),
)


class Unusable(Exception):
    """A service that answers and cannot be used; the text says why."""


def reason(error: BaseException) -> str:
    """Return why a connection failed. An unknown error is named by its class: its text may hold a password."""
    for cause in causes(error):
        if isinstance(cause, Unusable):
            return str(cause)
        for kind, words in KINDS:
            if isinstance(cause, kind):
                return words
    text = str(error).lower()
    for sign, words in SIGNS:
        if sign in text:
            return words
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return cause.strerror[0].lower() + cause.strerror[1:]
    return f"the connection fails ({type(error).__name__})"


def database_place(database: Mapping[str, Any]) -> str:
    """Return where a database of ``DATABASES`` is, for the middle of a sentence."""
    where = f"{database['HOST']}:{database['PORT'] or 5432}" if database.get("HOST") else str(database["NAME"])
    return f"the database at {where} (DATABASE_URL)"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and what caused it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
