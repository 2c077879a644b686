"""Limits and memory of request bodies: small forms without a sign-in, and no body kept after its response."""

import gc
import io
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from rest_framework.request import Empty

#: The largest form without a sign-in: that of the admin's sign-in page.
STRANGERS_FORM_BYTES = 4 * 1024

#: The longest silence of a client while its body is read, and the lowest average rate after that time: a slow client
#: must not delay the others.
SILENCE_SECONDS = 30.0
SLOWEST_BYTES_PER_SECOND = 256 * 1024

#: A body above this size waits unread for its turn, at most this long, then gets a 503 (ami.ml.api.gate): clients that
#: post results do not retry by themselves.
LARGE_BYTES = 32 * 1024**2
WAIT_SECONDS = 60.0

#: How much of a refused body is read and discarded, so that the client can read the response and reuse the connection.
#: For larger bodies the web server closes the connection (config/web_server.py).
DRAIN_BYTES = 16 * 1024**2
DRAIN_SECONDS = 0.5
#: The longest silence meanwhile on a connection that closes afterwards, as each of the proxy's does: what it needs to
#: read the response.
CLOSING_SILENCE_SECONDS = 0.05
PIECE_BYTES = 64 * 1024

#: From this body size on, garbage is collected after the response.
COLLECT_BYTES = 16 * 1024


class RequestBodyMiddleware:
    """The first middleware: refuses invalid requests unread, and releases each body after its response."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = refusal(request) or self._get_response(request)
        release(request, response)
        drain(request.META)
        return response

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:  # noqa: ARG002
        """Refuse a too large form before the CSRF check reads it; the API has its own budgets."""
        if request.method in ("GET", "HEAD", "OPTIONS") or getattr(view, "csrf_exempt", False):
            return None
        length = _length(request.META)
        if length <= STRANGERS_FORM_BYTES:
            return None
        if request.user.is_authenticated and length <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            return None
        return _refused(413, "The form is too large.")


def refusal(request: HttpRequest) -> HttpResponse | None:
    """Return the error response of an invalid request, else None."""
    if "%00" in request.META.get("QUERY_STRING", "") or "\x00" in request.path_info:
        return _refused(400, "The address holds a NUL character.")
    if "chunked" in request.META.get("HTTP_TRANSFER_ENCODING", "").lower():
        # Django reads Content-Length bytes, so it would see an empty body.
        return _refused(411, "Send the body with its Content-Length.")
    return None


def release(request: HttpRequest, response: Any) -> None:
    """Release the body and the objects parsed from it.

    Request and user, view and request, serializer and fields refer to each other, so only the garbage collector frees
    them. It counts objects, not bytes: a list of a million small values counts as one. So the known references are cut
    here, and after a large body garbage is collected for what serializers keep.
    """
    parsed_by = request.__dict__.pop("parsed_by", None)
    for name in ("_body", "_post"):
        request.__dict__.pop(name, None)
    if hasattr(request, "_stream"):
        request._stream = io.BytesIO()
    if parsed_by is None:
        return
    parsed_by._data = parsed_by._full_data = Empty
    parsed_by._stream = None
    parsed_by.parser_context.clear()
    # The response is rendered: it no longer needs the view, the request and the serializer.
    response.renderer_context = {}
    if hasattr(getattr(response, "data", None), "serializer"):
        response.data.serializer = None
    if _length(request.META) >= COLLECT_BYTES:
        del parsed_by
        gc.collect()


def drain(environ: dict[str, Any]) -> None:
    """Read and discard the unread rest of the body, at most `DRAIN_BYTES` within `DRAIN_SECONDS`.

    The response announces the end of the connection if there is more.
    """
    connection = environ.get("gunicorn.socket")
    if connection is None or not (_length(environ) or "HTTP_TRANSFER_ENCODING" in environ):
        return
    before, until, left = connection.gettimeout(), time.monotonic() + DRAIN_SECONDS, DRAIN_BYTES
    known, whole = hasattr(connection, "until"), False  # config.web_server.DeadlineSocket
    if known:  # Bytes that drip in do not prolong it.
        connection.until = until
    closing = environ.get("HTTP_CONNECTION", "").lower() == "close"
    silence = CLOSING_SILENCE_SECONDS if closing else DRAIN_SECONDS
    # Ignore errors in the rest of the body: the response is sent, then the server closes the connection.
    with suppress(Exception):
        while left > 0 and (seconds := until - time.monotonic()) > 0:
            connection.settimeout(min(silence, seconds))
            if not (piece := environ["wsgi.input"].read(PIECE_BYTES)):
                whole = True
                break
            left -= len(piece)
    if known and not whole:
        connection.force_close()
    connection.settimeout(before)


def _length(environ: dict[str, Any]) -> int:
    text = str(environ.get("CONTENT_LENGTH") or "")
    return int(text[:20]) if text.isdecimal() else 0


def _refused(status: int, sentence: str) -> HttpResponse:
    return HttpResponse(f"{sentence}\n", status=status, content_type="text/plain; charset=utf-8")
