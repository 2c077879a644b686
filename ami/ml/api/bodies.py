"""Reading a worker's request body: bounded before it is read, kept once, checked by the wire's own models."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TypeVar

from django.conf import settings
from django.http import UnreadablePostError
from rest_framework import exceptions
from rest_framework.request import Request

from ami.main.api.budgets import TooLarge
from ami.main.api.errors import TooSlow
from ami.main.services.request_body import SILENCE_SECONDS, SLOWEST_BYTES_PER_SECOND
from ami.ml.api.gate import GATE, LARGE_BYTES
from ami.ml.schemas import WireModel
from ami.ml.services import wire

Model = TypeVar("Model", bound=WireModel)

SMALL_BODY_BYTES = 1024**2
CHUNK_BYTES = 1024**2


def read(request: Request, model: type[Model], limit_bytes: int | None = None) -> Model:
    """Return the body as ``model``; ``limit_bytes`` is what a body of results may have unless given.

    Raises:
        TooLarge: 413, by the Content-Length.
        Busy: 503, another large body is worked on.
        TooSlow: 408, the sender is silent or too slow.
        rest_framework.exceptions.ValidationError: 400, {field: [message]}.
    """
    with _received(request, limit_bytes) as body, _wire_errors():
        return wire.parse(body, model)


@contextmanager
def results(request: Request) -> Iterator[list[wire.PostedResult]]:
    """Yield the results that a worker posted, all of them valid; their texts are gone after the block.

    Raises:
        TooLarge, Busy, TooSlow, rest_framework.exceptions.ValidationError: as ``read``.
    """
    with _received(request) as body:
        with _wire_errors():
            posted = wire.posted_results(body)
        try:
            yield posted
        finally:
            for item in posted:
                item.text.release()


@contextmanager
def _wire_errors() -> Iterator[None]:
    try:
        yield
    except wire.WireError as error:
        # Without its cause, which has what was read in its frames.
        raise exceptions.ValidationError(error.fields) from None


@contextmanager
def _received(request: Request, limit_bytes: int | None = None) -> Iterator[bytearray]:
    """Yield the whole body in one buffer, emptied afterwards; a large one has waited for its turn unread.

    Without a Content-Length there is no body: Django reads none.
    """
    limit = limit_bytes if limit_bytes is not None else settings.ANTENNA_RESULT_MAX_BYTES
    text = request.META.get("CONTENT_LENGTH") or ""
    length = int(text[:19]) if text.isdecimal() else 0
    if length > limit:
        raise TooLarge(f"The body has {text[:19]} bytes; at most {limit} are taken. Send smaller batches.")
    with GATE.turn() if length > LARGE_BYTES else nullcontext():
        body = bytearray()
        try:
            _read_into(body, request)
            if len(body) > limit:
                raise TooLarge(f"The body has more than {limit} bytes. Send smaller batches.")
            yield body
        finally:
            # What an exception still refers to is then an empty buffer.
            with suppress(BufferError):
                body.clear()


def _read_into(body: bytearray, request: Request) -> None:
    # From the plain request: Django REST framework's parser would build the whole body twice.
    connection = request.META.get("gunicorn.socket")
    before = connection.gettimeout() if connection else None
    began = time.monotonic()
    try:
        if connection:
            connection.settimeout(SILENCE_SECONDS)
        while chunk := request._request.read(CHUNK_BYTES):
            body += chunk
            if time.monotonic() - began > SILENCE_SECONDS + len(body) / SLOWEST_BYTES_PER_SECOND:
                raise TooSlow(f"The body came slower than {SLOWEST_BYTES_PER_SECOND} bytes a second.")
    except (TimeoutError, UnreadablePostError) as error:
        if isinstance(error, UnreadablePostError) and not isinstance(error.__cause__, TimeoutError):
            raise
        raise TooSlow(f"Nothing came for {SILENCE_SECONDS:.0f} seconds.") from None
    finally:
        if connection:
            connection.settimeout(before)
