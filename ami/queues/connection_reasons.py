"""Names in a few words why a connection failed, without any part of its URL."""

import socket
import ssl
from collections.abc import Iterator

ANSWER_SECONDS = 3.0

SILENT = f"no answer within {ANSWER_SECONDS:g} s"
UNKNOWN = "the name is not known"
REFUSED = "connection refused"
LOGIN = "the login is refused"

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
    ("no password supplied", LOGIN),
    ("no pg_hba.conf entry", LOGIN),
    ("failed to resolve host", UNKNOWN),
    ("does not exist", "there is no such database or role"),
    ("system is starting up", "it is still starting"),
    ("loading the dataset", "it is still reading its data"),
    ("connection refused", REFUSED),
    ("timeout", SILENT),
    ("timed out", SILENT),
    ("closed", "it closed the connection"),
)


class Unusable(Exception):
    """A service that answers and cannot be used; the text says why."""


def reason(error: BaseException) -> str:
    """Return why a connection failed. An unknown error is named by its class: its text may hold a password."""
    for cause in _causes(error):
        if isinstance(cause, Unusable):
            return str(cause)
        for kind, words in KINDS:
            if isinstance(cause, kind):
                return words
    text = str(error).lower()
    for sign, words in SIGNS:
        if sign in text:
            return words
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return cause.strerror[0].lower() + cause.strerror[1:]
    return f"the connection fails ({type(error).__name__})"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
