"""How large a JSON body of each endpoint may be: in bytes, in elements and in depth, counted before it is parsed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, Any

from django.conf import settings
from rest_framework import status
from rest_framework.exceptions import APIException

#: A JSON string, also one that never ends. Possessive, so that no text makes it search a second time.
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)

MARKS = (b",", b":", b"[", b"{", b"]", b"}")
NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class TooLarge(APIException):
    """The request body is larger than this endpoint takes."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"


class TooManyElements(ValueError):
    """A body's structure exceeds its budget; the text says which number."""


@dataclass(frozen=True)
class Budget:
    """What one JSON body may take. Its elements are its texts and its structural characters ``, : [ ] { }``.

    Three of them make the largest object for its text, of about 250 bytes; so ``elements`` bounds what parsing takes.
    """

    byte_count: int
    elements: int
    depth: int = 32

    def read(self, stream: IO[bytes], length: str) -> bytes:
        """Return the body; ``length`` is the request's Content-Length.

        Raises:
            TooLarge: 413, by the length before a byte is read, else after reading one byte too many.
        """
        limit = min(self.byte_count, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
        if length.isdecimal() and int(length[:20]) > limit:
            raise TooLarge(f"The body has {length[:20]} bytes; this address takes at most {limit}.")
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise TooLarge(f"The body has more than {limit} bytes.")
        return body

    def check(self, body: bytes) -> None:
        """Count the structure of a JSON text without making a single object of it.

        Raises:
            TooManyElements: it has more elements or is nested deeper than the budget has.
        """
        found, brackets = 0, bytearray()
        for piece in _structure(body):
            found += 1 + sum(map(piece.count, MARKS))
            if found > self.elements:
                raise TooManyElements(f"has more than {self.elements} elements")
            brackets += piece.translate(None, NOT_BRACKETS)
        if max(accumulate(map(STEPS.__getitem__, brackets)), default=0) > self.depth:
            raise TooManyElements(f"is nested more than {self.depth} levels deep")


def _structure(body: bytes) -> Iterator[bytes]:
    """Yield what stands between the strings, piece by piece: all at once would take thirty times the body."""
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
    """Return what ``view`` declares as its ``budget``; an ordinary write's unless it declares one."""
    found = getattr(view, "budget", ORDINARY)
    return found if isinstance(found, Budget) else ORDINARY
