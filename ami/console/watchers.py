"""Answers the polls of those who watch a page without the database: who may see what, and what was rendered last.

A session that was checked is trusted for `TRUSTED_SECONDS`: a user who loses a permission sees figures for so long at
most, one who signs out for `REMEMBERED_SECONDS`. What is kept depends on the address, the version of the figures and
the permissions alone, so that all who watch share it. The processes of web share both through Redis, where that is the
cache: a session is checked and a part rendered once for all of them.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from ami.console import shared_parts

TRUSTED_SECONDS = 90.0
#: A process asks the cache again whether a session is trusted.
REMEMBERED_SECONDS = 20.0
#: The figures of a part have another version long before.
PART_SECONDS = 10.0
MOST_WATCHERS, MOST_PARTS = 2000, 200
#: A part is a piece of a page, whose own policy counts; opened by itself it may load nothing.
PART_POLICY = "default-src 'none'; frame-ancestors 'none'"


@dataclass(frozen=True)
class Watcher:
    """A session that was checked: until when it is trusted (epoch), and the operations that it may see buttons for."""

    until: float
    allowed: frozenset[str]


class Watchers:
    """What one process remembers of sessions, and of the parts of pages that it has rendered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Watcher] = OrderedDict()
        self._parts: OrderedDict[tuple[str, str], tuple[str, bytes]] = OrderedDict()

    def trust(self, session: str, allowed: frozenset[str]) -> None:
        """Remember that a session was checked just now."""
        if session:
            until = time.time() + TRUSTED_SECONDS
            self._remember(session, until, allowed)
            shared_parts.write("watcher", session, [until, sorted(allowed)], TRUSTED_SECONDS)

    def trusted(self, session: str) -> Watcher | None:
        """Return what is known of a session; None where it must be checked."""
        if (known := self.remembered(session)) is not None:
            return known
        if not session or not (found := shared_parts.read("watcher", session)) or found[0] <= time.time():
            return None
        return self._remember(session, found[0], frozenset(found[1]))

    def remembered(self, session: str) -> Watcher | None:
        """Return what this process knows of a session, without asking anyone."""
        known = self._known.get(session)
        return known if known is not None and known.until > time.time() else None

    def distrust(self, session: str) -> None:
        """Let a session be checked anew: its user has signed out. Other processes may take `REMEMBERED_SECONDS`."""
        with self._lock:
            self._known.pop(session, None)
        shared_parts.forget("watcher", session)

    def _remember(self, session: str, until: float, allowed: frozenset[str]) -> Watcher:
        watcher = Watcher(min(until, time.time() + REMEMBERED_SECONDS), allowed)
        with self._lock:
            _put(self._known, session, watcher, MOST_WATCHERS)
        return watcher

    def keep(self, address: str, etag: str, part: bytes) -> None:
        """Keep what was rendered for an address, in place of its last version."""
        self._put_part(address, etag, part)
        shared_parts.write("part", f"{etag} {address}", part.decode(), PART_SECONDS)

    def kept(self, address: str, etag: str) -> bytes | None:
        """Return what was rendered for an address, if it has this ETag."""
        if (found := self.at_hand(address, etag)) is not None:
            return found
        text: str | None = shared_parts.read("part", f"{etag} {address}")
        if text is None:
            return None
        part = text.encode()
        self._put_part(address, etag, part)
        return part

    def at_hand(self, address: str, etag: str) -> bytes | None:
        """Return what this process has of an address, if it has this ETag, without asking anyone."""
        found = self._parts.get((address, etag.partition(".")[0]))
        return found[1] if found is not None and found[0] == etag else None

    def _put_part(self, address: str, etag: str, part: bytes) -> None:
        with self._lock:
            _put(self._parts, (address, etag.partition(".")[0]), (etag, part), MOST_PARTS)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()
            self._parts.clear()


def _put(store: "OrderedDict[Any, Any]", key: Any, value: Any, most: int) -> None:
    store[key] = value
    store.move_to_end(key)
    while len(store) > most:
        store.popitem(last=False)


def session_of(request: HttpRequest) -> str:
    """Return the key of a request's session, empty without one; it is a secret."""
    return str(request.COOKIES.get(settings.SESSION_COOKIE_NAME, ""))


#: Of this process.
watchers = Watchers()


def etag_of(allowed: frozenset[str], version: str) -> str:
    """Return the ETag of a part: the permissions first, then the version of its figures."""
    digest = hashlib.sha256(" ".join(sorted(allowed)).encode()).hexdigest()[:12]
    return f'"{digest}.{version}"'


def answer(request: HttpRequest, etag: str, part: bytes) -> HttpResponse:
    """Return a part of a page, or 304 where the client has it."""
    headers = {"ETag": etag, "Cache-Control": "private, no-store", "Content-Security-Policy": PART_POLICY}
    if request.headers.get("If-None-Match") == etag:
        return HttpResponse(status=304, headers=headers)
    return HttpResponse(part, headers=headers)
