"""gunicorn's deadlines for bodies, and its logs (`python:config.web_server`).

A thread serves one request from its first byte on: web belongs behind a proxy that buffers, which has the whole request
before it asks. Bodies of results come through the proxy as they are sent, and have a deadline here.
"""

import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from gunicorn.glogging import Logger as GunicornLogger
from gunicorn.workers.gthread import ThreadWorker

from ami.main.services.request_body import (
    DRAIN_BYTES,
    DRAIN_SECONDS,
    LARGE_BYTES,
    SILENCE_SECONDS,
    SLOWEST_BYTES_PER_SECOND,
    WAIT_SECONDS,
)
from config.logs import JsonFormatter

#: The longest silence in a body of at most SMALL_BYTES.
SMALL_BODY_SECONDS = 10.0
SMALL_BYTES = 64 * 1024

#: A statement of a request that the database does not answer is given up after so long: a thread waits for it.
ANSWER_SECONDS = 60.0

#: What is sent in one piece, so that SILENCE_SECONDS are about the client and not about the size of an answer.
PIECE_BYTES = 64 * 1024

#: A page asks again after five seconds: its connection is kept, and waits without a thread.
keepalive = 10
worker_class = "config.web_server.Worker"
logger_class = "config.web_server.Logger"
#: Nothing here uses it, and it would be another way to stop web.
control_socket_disable = True


class DeadlineSocket(socket.socket):
    """A connection whose client has a time for its body by the body's size."""

    #: When reading ends (monotonic); None without a deadline.
    until: float | None = None
    #: Announces in the answer that the connection closes afterwards.
    force_close: Callable[[], None] = staticmethod(lambda: None)

    def begin_body(self, length: int) -> None:
        """Give the time that the slowest accepted client needs, and a large body's wait for its turn."""
        silence = SMALL_BODY_SECONDS if length <= SMALL_BYTES else SILENCE_SECONDS
        wait = WAIT_SECONDS if length > LARGE_BYTES else 0.0
        self.until = time.monotonic() + silence + wait + length / SLOWEST_BYTES_PER_SECOND
        self.settimeout(silence)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Read, until the deadline; a TimeoutError says that the body did not come in time."""
        if self.until is not None and time.monotonic() > self.until:
            raise TimeoutError("The request takes too long.")
        return super().recv(size, flags)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send in pieces, each with a timeout of its own."""
        with memoryview(data) as view:
            for start in range(0, len(view), PIECE_BYTES):
                super().sendall(view[start : start + PIECE_BYTES], flags)


class Worker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's worker with threads, on connections with deadlines."""

    def enqueue_req(self, conn: Any) -> None:
        """Hand a connection to a thread."""
        if not isinstance(conn.sock, DeadlineSocket):
            conn.sock = DeadlineSocket(fileno=conn.sock.detach())
        super().enqueue_req(conn)

    def handle(self, conn: Any) -> Any:
        """Serve a request; where its connection ends, wait here for the client to read the answer.

        gunicorn would wait in the loop, for up to two seconds; and who still sends a body must not lose the answer.
        """
        stays = super().handle(conn)
        if not stays:
            _end(conn.sock)
        return stays

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer a request whose headers are here."""
        conn.sock.begin_body(_length(dict(req.headers)))
        conn.sock.force_close = req.force_close
        try:
            return super().handle_request(req, conn)
        finally:
            conn.sock.until = None


def _end(client: Any) -> None:
    """Say that the answer was the last, and discard what comes until the client closes, or `DRAIN_SECONDS`."""
    until = time.monotonic() + DRAIN_SECONDS
    with suppress(OSError):
        client.shutdown(socket.SHUT_WR)
        while (left := until - time.monotonic()) > 0:
            client.settimeout(left)
            if not client.recv(PIECE_BYTES):
                break
    with suppress(OSError):
        client.shutdown(socket.SHUT_RD)


#: What a page asks every few seconds for, while somebody watches it (ami/console/page.py), and Prometheus every 15 s.
POLL = re.compile(r"/admin/queues/(?:\S*?)\?(?:\S*&)?live=|/metrics$")
#: A poll that is answered so is not logged: it says that all is well.
UNLOGGED = (200, 304)


class Logger(GunicornLogger):  # type: ignore[misc]
    """gunicorn's logs, in JSON where ``ANTENNA_LOG_FORMAT`` says so, without the polls of pages."""

    def access(self, resp: Any, req: Any, environ: Any, request_time: Any) -> None:
        """Log a request, unless it is a poll that went well."""
        if not (resp.status_code in UNLOGGED and POLL.match(str(environ.get("RAW_URI", "")))):
            super().access(resp, req, environ, request_time)

    def atoms(self, resp: Any, req: Any, environ: Any, request_time: Any) -> Any:
        """Name the client as the throttles do, not the proxy."""
        from ami.main.services.client_address import address_of

        known = super().atoms(resp, req, environ, request_time)
        return {**known, "h": address_of(SimpleNamespace(META=environ)) or "-"}

    def setup(self, cfg: Any) -> None:
        from django.conf import settings

        super().setup(cfg)
        if settings.LOG_FORMAT == "json":
            for handler in (*self.error_log.handlers, *self.access_log.handlers):
                handler.setFormatter(JsonFormatter())


def post_worker_init(worker: Any) -> None:
    """Sample queues and workers from a web process, too: it still does when no worker and no beat is left."""
    from ami.celery import answer_limits
    from ami.telemetry.sampler_thread import start

    answer_limits.limit(ANSWER_SECONDS)
    start(f"web@{socket.gethostname()}:{worker.pid}")


def pre_request(_: Any, request: Any) -> None:
    """Announce the end of the connection after a body that is too large to be thrown away when it is refused.

    Without the announcement a client would send its next request into a connection that is being closed.
    """
    headers = dict(request.headers)
    if "TRANSFER-ENCODING" in headers or not 0 <= _length(headers) <= DRAIN_BYTES:
        request.force_close()


def _length(headers: dict[str, str]) -> int:
    """Return the Content-Length, -1 where it is not a number."""
    text = headers.get("CONTENT-LENGTH", "0")
    return int(text[:20]) if text.isdecimal() else -1
