"""Answers the polls of those who watch a page without the database: who may see what, and what was rendered last.

A session that was checked is trusted for `TRUSTED_SECONDS`: a user who signs out, or loses a permission, sees figures
for so long at most. What is kept depends on the address, the version of the figures and the permissions alone, so that
all who watch share it.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse

TRUSTED_SECONDS = 20.0
MOST_WATCHERS, MOST_PARTS = 2000, 200


@dataclass(frozen=True)
class Watcher:
    """A session that was checked: until when it is trusted, and the operations that it may see buttons for."""

    until: float
    allowed: frozenset[str]


class Watchers:
    """What one process remembers of sessions, and of the parts of pages that it has rendered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Watcher] = OrderedDict()
        self._parts: OrderedDict[tuple[str, str], tuple[str, bytes]] = OrderedDict()

    def trust(self, request: HttpRequest, allowed: frozenset[str]) -> None:
        """Remember that the session of a request was checked just now."""
        if key := _session(request):
            with self._lock:
                _put(self._known, key, Watcher(time.monotonic() + TRUSTED_SECONDS, allowed), MOST_WATCHERS)

    def trusted(self, request: HttpRequest) -> Watcher | None:
        """Return what is known of a request's session; None where it must be checked."""
        known = self._known.get(_session(request))
        return known if known is not None and known.until > time.monotonic() else None

    def keep(self, address: str, etag: str, part: bytes) -> None:
        """Keep what was rendered for an address, in place of its last version."""
        with self._lock:
            _put(self._parts, (address, etag.partition(".")[0]), (etag, part), MOST_PARTS)

    def kept(self, address: str, etag: str) -> bytes | None:
        """Return what was rendered for an address, if it has this ETag."""
        found = self._parts.get((address, etag.partition(".")[0]))
        return found[1] if found is not None and found[0] == etag else None

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


def _session(request: HttpRequest) -> str:
    return str(request.COOKIES.get(settings.SESSION_COOKIE_NAME, ""))


#: Of this process.
watchers = Watchers()


def etag_of(allowed: frozenset[str], version: str) -> str:
    """Return the ETag of a part: the permissions first, then the version of its figures."""
    digest = hashlib.sha256(" ".join(sorted(allowed)).encode()).hexdigest()[:12]
    return f'"{digest}.{version}"'


def answer(request: HttpRequest, etag: str, part: bytes) -> HttpResponse:
    """Return a part of a page, or 304 where the client has it."""
    headers = {"ETag": etag, "Cache-Control": "private, no-store"}
    if request.headers.get("If-None-Match") == etag:
        return HttpResponse(status=304, headers=headers)
    return HttpResponse(part, headers=headers)
