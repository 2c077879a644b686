"""Answers a poll that is byte for byte an earlier one, in the web server's loop: without a parser, a thread or Django.

Who watches a page sends the same bytes every two seconds; only the ETag changes with the figures. What is needed for
the answer is learned where the same bytes were parsed (`ami.console.polls`), and everything is in this process's
memory: where it is not, or is too old, the request goes the usual way, which looks again.
"""

import threading
import time
from collections import OrderedDict
from email.utils import formatdate
from typing import NamedTuple

from ami.console.refresher import FRESH_SECONDS, Refresher
from ami.console.watchers import Watchers, etag_of, watchers
from ami.telemetry.snapshots import shared

Headers = list[tuple[str, str]]
#: What an answer without a body has not.
OF_BODY = frozenset({"content-type"})
MOST_REQUESTS = 500
#: So much older figures are while the next snapshot is taken.
TAKING_SECONDS = 1.0
#: A request of at least so many bytes is not looked at.
MOST_BYTES = 8192
END, IF_NONE_MATCH = b"\r\n\r\n", b"\r\nIf-None-Match: "


class _Known(NamedTuple):
    session: str
    address: str
    without_body: bytes
    with_body: bytes


class RepeatedPolls:
    """What one process has learned of polls."""

    def __init__(self, known: Watchers = watchers, refresher: Refresher | None = None) -> None:
        self._watchers, self._refresher = known, refresher
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def learn(self, request: bytes, etag: str, session: str, address: str, headers: Headers) -> None:
        """Remember how a poll was parsed: its ETag, its session and its address; ``headers`` are those of a 200."""
        if not _is_whole(request):
            return
        key, found = _without_etag(request)
        if found != etag.encode():
            return
        known = _Known(session, address, _lines(without(headers, OF_BODY)), _lines(headers))
        with self._lock:
            self._known[key] = known
            self._known.move_to_end(key)
            while len(self._known) > MOST_REQUESTS:
                self._known.popitem(last=False)

    def answer(self, request: bytes) -> bytes | None:
        """Return the whole response; None where the request is to go the usual way. It neither waits nor asks."""
        if not _is_whole(request):
            return None
        key, etag = _without_etag(request)
        if (known := self._known.get(key)) is None:
            return None
        if self._refresher:
            self._refresher.want()
        if (version := shared.known_version(FRESH_SECONDS + TAKING_SECONDS)) is None:
            return None
        if (watcher := self._watchers.remembered(known.session)) is None:
            return None
        now = etag_of(watcher.allowed, str(version))
        if now.encode() == etag:
            return _head("304 Not Modified", known.without_body, now) + b"\r\n"
        if (part := self._watchers.at_hand(known.address, now)) is None:
            return None
        return _head("200 OK", known.with_body, now) + b"Content-Length: %d\r\n\r\n" % len(part) + part

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()


def _is_whole(request: bytes) -> bool:
    """Whether these bytes are one request without a body, after which the connection stays open."""
    return (
        request.startswith(b"GET ")
        and len(request) < MOST_BYTES
        and request.find(END) == len(request) - len(END)
        and b" HTTP/1.1\r\n" in request[: request.find(b"\n") + 1]
        and b"connection: close" not in request.lower()
    )


def _without_etag(request: bytes) -> tuple[bytes, bytes]:
    before, found, after = request.partition(IF_NONE_MATCH)
    etag, _, rest = after.partition(b"\r\n")
    return (before + b"\r\n" + rest, etag) if found else (request, b"")


def without(headers: Headers, names: frozenset[str]) -> Headers:
    """Return the headers but for those of these lower-case names."""
    return [(name, value) for name, value in headers if name.lower() not in names]


def _lines(headers: Headers) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1")


def _head(status: str, headers: bytes, etag: str) -> bytes:
    date = formatdate(time.time(), usegmt=True)
    first = f"HTTP/1.1 {status}\r\nServer: gunicorn\r\nDate: {date}\r\nConnection: keep-alive\r\n"
    return first.encode() + headers + f"ETag: {etag}\r\n".encode()


#: Of this process.
repeated_polls = RepeatedPolls(watchers, Refresher())
