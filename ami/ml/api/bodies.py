"""Reads a worker's request body: size checked before reading, held in memory once, parsed by `ami.ml.services.wire`."""

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
    """Parse the body as ``model``; ``limit_bytes`` defaults to ANTENNA_RESULT_MAX_BYTES.

    Raises:
        TooLarge: 413, the body exceeds the limit.
        Busy: 503, another large body is in progress.
        TooSlow: 408, the client sends nothing or too slowly.
        rest_framework.exceptions.ValidationError: 400, {"detail": message, field: [message]}.
    """
    with _received(request, limit_bytes) as body, _wire_errors():
        return wire.parse(body, model)


@contextmanager
def results(request: Request) -> Iterator[wire.Posted]:
    """Yield the results that a worker posted, right and wrong ones; their texts are released after the block.

    Raises:
        TooLarge, Busy, TooSlow, rest_framework.exceptions.ValidationError: as ``read``.
    """
    with _received(request) as body:
        with _wire_errors():
            posted = wire.posted(body)
        try:
            yield posted
        finally:
            for item in posted.results:
                if isinstance(item, wire.PostedResult):
                    item.text.release()


@contextmanager
def _wire_errors() -> Iterator[None]:
    try:
        yield
    except wire.WireError as error:
        # Without the cause: its frames keep the parsed body in memory.
        raise exceptions.ValidationError({"detail": str(error), **error.fields}) from None


@contextmanager
def _received(request: Request, limit_bytes: int | None = None) -> Iterator[bytearray]:
    """Yield the body in one buffer that is cleared afterwards; a large body waits for the gate before it is read.

    Without a Content-Length the body is empty, because Django does not read it.
    """
    limit = limit_bytes if limit_bytes is not None else settings.ANTENNA_RESULT_MAX_BYTES
    text = request.META.get("CONTENT_LENGTH") or ""
    length = int(text[:19]) if text.isdecimal() else 0
    if length > limit:
        raise TooLarge(f"The body has {text[:19]} bytes; the limit is {limit}. Send smaller batches.")
    with GATE.turn() if length > LARGE_BYTES else nullcontext():
        body = bytearray()
        try:
            _read_into(body, request)
            if len(body) > limit:
                raise TooLarge(f"The body has more than {limit} bytes. Send smaller batches.")
            yield body
        finally:
            # An exception that still refers to the buffer then keeps only an empty one.
            with suppress(BufferError):
                body.clear()


def _read_into(body: bytearray, request: Request) -> None:
    # Read from Django's request: the parser of Django REST framework would copy the whole body.
    connection = request.META.get("gunicorn.socket")
    before = connection.gettimeout() if connection else None
    began = time.monotonic()
    try:
        if connection:
            connection.settimeout(SILENCE_SECONDS)
        while chunk := request._request.read(CHUNK_BYTES):
            body += chunk
            if time.monotonic() - began > SILENCE_SECONDS + len(body) / SLOWEST_BYTES_PER_SECOND:
                raise TooSlow(f"The body arrived slower than {SLOWEST_BYTES_PER_SECOND} bytes per second.")
    except (TimeoutError, UnreadablePostError) as error:
        if isinstance(error, UnreadablePostError) and not isinstance(error.__cause__, TimeoutError):
            raise
        raise TooSlow(f"No data arrived for {SILENCE_SECONDS:.0f} seconds.") from None
    finally:
        if connection:
            connection.settimeout(before)
