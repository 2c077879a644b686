"""Size limits of each endpoint's JSON bodies in bytes, elements and depth, checked before parsing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, Any

from django.conf import settings
from rest_framework import status
from rest_framework.exceptions import APIException

#: A JSON string, terminated or not. Possessive, so that no text makes it backtrack.
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)

MARKS = (b",", b":", b"[", b"{", b"]", b"}")
NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class TooLarge(APIException):
    """The request body is larger than the endpoint's budget."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"


class TooManyElements(ValueError):
    """A body's structure exceeds its budget; the message names the limit."""


@dataclass(frozen=True)
class Budget:
    """The limits of one JSON body. Its elements are its strings and its structural characters ``, : [ ] { }``.

    An object of about 250 bytes in memory needs at least three elements, so ``elements`` bounds the memory of parsing.
    """

    byte_count: int
    elements: int
    depth: int = 32

    def read(self, stream: IO[bytes], length: str) -> bytes:
        """Return the body; ``length`` is the request's Content-Length.

        Raises:
            TooLarge: 413; by the length before anything is read, else after one byte too many.
        """
        limit = min(self.byte_count, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
        if length.isdecimal() and int(length[:20]) > limit:
            raise TooLarge(f"The body has {length[:20]} bytes; this endpoint accepts at most {limit}.")
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise TooLarge(f"The body has more than {limit} bytes.")
        return body

    def check(self, body: bytes) -> None:
        """Count the elements and the depth of a JSON text without parsing it.

        Raises:
            TooManyElements: it has more elements or levels than the budget.
        """
        elements, brackets = 0, bytearray()
        for piece in _structure(body):
            elements += 1 + sum(map(piece.count, MARKS))
            if elements > self.elements:
                raise TooManyElements(f"has more than {self.elements} elements")
            brackets += piece.translate(None, NOT_BRACKETS)
        if max(accumulate(map(STEPS.__getitem__, brackets)), default=0) > self.depth:
            raise TooManyElements(f"is nested more than {self.depth} levels deep")


def _structure(body: bytes) -> Iterator[bytes]:
    """Yield the text between the strings, in pieces: one list of them would take thirty times the body."""
    end = 0
    for string in STRING.finditer(body):
        yield body[end : string.start()]
        end = string.end()
    yield body[end:]


LOGIN = Budget(4 * 1024, 50)
ORDINARY = Budget(256 * 1024, 10_000)

#: A job over 10,000 captures by key, at most 20 bytes each.
CAPTURE_LIST = Budget(1024**2, 12_000)

#: A capture set of 100,000 captures by key.
CAPTURE_SET = Budget(4 * 1024**2, 110_000)


def budget_of(view: Any) -> Budget:
    """Return the ``budget`` of ``view``, ``ORDINARY`` when it declares none."""
    budget = getattr(view, "budget", ORDINARY)
    return budget if isinstance(budget, Budget) else ORDINARY
