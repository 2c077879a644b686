"""Answers polls of the console before Django does: most find nothing new, and the way through Django is their cost.

Everything is learned from Django's own answers. A poll goes to Django unless Django has answered the same address with
a part of a page before, the session was checked in the last seconds, and the part is at hand or the client has it.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.db import Error
from django.http import parse_cookie

from ami.console.refresher import FRESH_SECONDS
from ami.console.repeated_polls import OF_BODY, Headers, RepeatedPolls, repeated_polls, without
from ami.console.watchers import Watchers, etag_of, watchers
from ami.telemetry.snapshots import shared

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

#: The parameter of the query that asks for one part of a page alone; its value is the part's name.
LIVE = "live"
MOST_ADDRESSES = 200
#: What is each answer's own.
OF_ONE = frozenset({"etag", "content-length", "expires"})


class Polls:
    """A WSGI application around Django's."""

    def __init__(
        self, application: Application, known: Watchers = watchers, repeated: RepeatedPolls = repeated_polls
    ) -> None:
        self._application, self._watchers, self._repeated = application, known, repeated
        self._lock = threading.Lock()
        self._headers: OrderedDict[tuple[str, ...], Headers] = OrderedDict()

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if not _is_poll(environ):
            return self._application(environ, start_response)
        key = _key(environ)
        if (headers := self._headers.get(key)) and (found := self._answer(environ, headers)) is not None:
            status, answered, body = found
            self._learn_bytes(environ, headers)
            start_response(status, answered)
            return [body]

        def learning(status: str, headers: Headers, *rest: Any) -> Any:
            self._learn(key, environ, status, headers)
            return start_response(status, headers, *rest)

        return self._application(environ, learning)

    def _answer(self, environ: Environ, headers: Headers) -> tuple[str, Headers, bytes] | None:
        if (watcher := self._watchers.trusted(_session(environ))) is None:
            return None
        try:
            etag = etag_of(watcher.allowed, str(shared.current(FRESH_SECONDS).version))
        except Error:  # Django's answer says what is wrong, and closes the connection.
            return None
        if environ.get("HTTP_IF_NONE_MATCH") == etag:
            return "304 Not Modified", [*without(headers, OF_BODY), ("ETag", etag)], b""
        if (part := self._watchers.kept(environ["RAW_URI"], etag)) is None:
            return None
        return "200 OK", [*headers, ("ETag", etag), ("Content-Length", str(len(part)))], part

    def _learn_bytes(self, environ: Environ, headers: Headers) -> None:
        """Let the web server's loop answer the same bytes, where it has seen them (`config.web_server`)."""
        if request := getattr(environ.get("gunicorn.socket"), "seen", b""):
            etag, session = environ.get("HTTP_IF_NONE_MATCH", ""), _session(environ)
            self._repeated.learn(request, etag, session, environ["RAW_URI"], headers)

    def _learn(self, key: tuple[str, ...], environ: Environ, status: str, headers: Headers) -> None:
        """Remember the headers of a part that all who watch share; nothing else has such an ETag."""
        given = {name.lower(): value for name, value in headers}
        if not status.startswith("200") or "set-cookie" in given or "etag" not in given:
            return
        if self._watchers.kept(environ["RAW_URI"], given["etag"]) is None:
            return
        with self._lock:
            self._headers[key] = without(headers, OF_ONE)
            self._headers.move_to_end(key)
            while len(self._headers) > MOST_ADDRESSES:
                self._headers.popitem(last=False)


def _is_poll(environ: Environ) -> bool:
    # gunicorn gives the address as the client sent it; another server's polls go to Django.
    return (
        environ["REQUEST_METHOD"] == "GET"
        and f"{LIVE}=" in environ.get("QUERY_STRING", "")
        and bool(environ.get("RAW_URI"))
        and environ.get("CONTENT_LENGTH", "") in ("", "0")
        and "HTTP_TRANSFER_ENCODING" not in environ
    )


def _session(environ: Environ) -> str:
    return str(parse_cookie(environ.get("HTTP_COOKIE", "")).get(settings.SESSION_COOKIE_NAME, ""))


def _key(environ: Environ) -> tuple[str, ...]:
    """Return what Django's answer depends on, but for the session: host and scheme are refused or redirected there."""
    names = ("wsgi.url_scheme", "HTTP_X_FORWARDED_PROTO", "HTTP_HOST", "HTTP_X_FORWARDED_HOST", "RAW_URI")
    return tuple(str(environ.get(name, "")) for name in names)
