"""One batch as bytes: a line of JSON with its moment and its commands, then the payloads one after the other."""

import json
import os
from collections.abc import Sequence
from typing import Any

from ami.transports.objectstore.queue.format import FORMAT
from ami.transports.objectstore.storage.errors import StorageError

#: ASCII alone: a lone surrogate in an id would otherwise fail every command of the batch.
line = json.JSONEncoder(separators=(",", ":")).encode


def encode(moment: float, lines: Sequence[str], payloads: list[bytes], token: str) -> tuple[bytes, int]:
    """Return the batch and where in it the payloads begin; ``lines`` are in JSON."""
    head = f"[{FORMAT},{line(token)},{line(moment)},[{','.join(lines)}]]\n".encode()
    return head + b"".join(payloads), len(head)


def decode(body: bytes) -> tuple[float, list[list[Any]], int]:
    """Return (moment, lines, where the payloads begin). Raises StorageError for what this version cannot read."""
    head, _, _ = body.partition(b"\n")
    try:
        found, *told = json.loads(head)
    except (ValueError, TypeError) as error:
        raise StorageError(f"the journal holds a batch that cannot be read: {error}", error) from error
    if found != FORMAT:
        raise StorageError(f"the journal has format {found}; this version reads {FORMAT}")
    _, moment, lines = told
    return moment, lines, len(head) + 1


class Tokens:
    """Numbers batches with something that only this writer has."""

    def __init__(self) -> None:
        self._prefix = os.urandom(6).hex()
        self._count = 0

    def next(self) -> str:
        """Return a token that no other batch has."""
        self._count += 1
        return f"{self._prefix}{self._count:x}"
