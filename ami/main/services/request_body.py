"""What a request's body may cost before and after its view: small for strangers, and nothing that stays behind."""

import gc
import io
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from rest_framework.request import Empty

#: The largest form that a stranger may send: the sign-in of the admin.
STRANGERS_FORM_BYTES = 4 * 1024

#: How long a client may send nothing while its body is read, and the average that it must reach, this long apart, so
#: that a slow one does not keep the others waiting.
SILENCE_SECONDS = 30.0
SLOWEST_BYTES_PER_SECOND = 256 * 1024

#: A body above this waits for its turn, unread, for so long before it is answered 503 (ami.ml.api.gate); a client
#: that posts results does not repeat a POST by itself.
LARGE_BYTES = 32 * 1024**2
WAIT_SECONDS = 60.0

#: What is read and thrown away of a body that was refused, so that its sender gets to read the answer and may use the
#: connection again. The web server announces the end of the connection for larger ones (config/web_server.py).
DRAIN_BYTES = 16 * 1024**2
DRAIN_SECONDS = 5.0
PIECE_BYTES = 64 * 1024

#: From this size on a body is worth looking for the objects that were made of it.
COLLECT_BYTES = 16 * 1024


class RequestBodyMiddleware:
    """Stands before every other: refuses odd requests unread, and lets go of each body with its answer."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass the request on, then drop its body."""
        response = refusal(request) or self._get_response(request)
        release(request, response)
        drain(request.META)
        return response

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:  # noqa: ARG002
        """Refuse a form that is too large before the check of its CSRF token reads it; the API has its own budgets."""
        if request.method in ("GET", "HEAD", "OPTIONS") or getattr(view, "csrf_exempt", False):
            return None
        length = _length(request.META)
        if length <= STRANGERS_FORM_BYTES:
            return None
        if request.user.is_authenticated and length <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            return None
        return _refused(413, "The form is too large.")


def refusal(request: HttpRequest) -> HttpResponse | None:
    """Return the answer to what no view should see, None for every other request."""
    if "%00" in request.META.get("QUERY_STRING", "") or "\x00" in request.path_info:
        return _refused(400, "The address holds a NUL character.")
    if "chunked" in request.META.get("HTTP_TRANSFER_ENCODING", "").lower():
        # Django reads as much as the length says, so it would take this for an empty body.
        return _refused(411, "Send the body with its Content-Length.")
    return None


def release(request: HttpRequest, response: Any) -> None:
    """Let go of the body and of what was parsed of it.

    A request and its user, a view and its request, a serializer and its fields hold each other, so that only the
    garbage collector frees them; and that one does not see how much a body takes: a list of a million small objects
    counts as one. What is known is cut here, and what a serializer has left is looked for after a large body.
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
    # Rendered already: what it still has of the view, the request and the serializer is not needed.
    response.renderer_context = {}
    if hasattr(getattr(response, "data", None), "serializer"):
        response.data.serializer = None
    if _length(request.META) >= COLLECT_BYTES:
        del parsed_by
        gc.collect()


def drain(environ: dict[str, Any]) -> None:
    """Read and throw away what no view has read, at most `DRAIN_BYTES` and for at most `DRAIN_SECONDS`."""
    connection = environ.get("gunicorn.socket")
    if connection is None or not (_length(environ) or "HTTP_TRANSFER_ENCODING" in environ):
        return
    before, until, left = connection.gettimeout(), time.monotonic() + DRAIN_SECONDS, DRAIN_BYTES
    # Whatever is wrong with the rest of a body, the answer is sent; the server then closes the connection.
    with suppress(Exception):
        while left > 0 and (seconds := until - time.monotonic()) > 0:
            connection.settimeout(seconds)
            if not (piece := environ["wsgi.input"].read(PIECE_BYTES)):
                break
            left -= len(piece)
    connection.settimeout(before)


def _length(environ: dict[str, Any]) -> int:
    text = str(environ.get("CONTENT_LENGTH") or "")
    return int(text[:20]) if text.isdecimal() else 0


def _refused(status: int, sentence: str) -> HttpResponse:
    return HttpResponse(f"{sentence}\n", status=status, content_type="text/plain; charset=utf-8")
