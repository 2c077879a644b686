"""One batch as bytes: a line of JSON with its moment and its commands, then the payloads."""

import json
import os
from collections.abc import Sequence
from typing import Any

from ami.transports.objectstore.queue.format import FORMAT
from ami.transports.objectstore.storage.errors import StorageError

#: ASCII only: a lone surrogate in an id would otherwise fail every command of the batch.
encode_line = json.JSONEncoder(separators=(",", ":")).encode

#: Without what ``json.loads`` does around it, which takes longer than a short line: opening a queue decodes each batch.
_scan = json.JSONDecoder().raw_decode


def encode(moment: float, lines: Sequence[str], payloads: list[bytes], token: str) -> tuple[bytes, int]:
    """Return the batch and the offset of its payloads; ``lines`` are in JSON."""
    # JSON writes a moment as Python does, and an encoder takes longer for it than for the rest.
    head = f"[{FORMAT},{encode_line(token)},{moment!r},[{','.join(lines)}]]\n".encode()
    return head + b"".join(payloads), len(head)


def decode(body: bytes) -> tuple[float, list[list[Any]], int]:
    """Return (moment, lines, the offset of the payloads). Raises StorageError for what this version cannot read."""
    try:
        # The payloads, which are most of it, are not copied.
        length = body.index(b"\n")
        (version, *rest), end = _scan(str(body[:length], "ascii"))
        if end != length:
            raise ValueError(f"its line has {length} bytes; {end} were read")
    except (ValueError, TypeError) as error:
        raise StorageError(f"the journal holds a batch that cannot be read: {error}", error) from error
    if version != FORMAT:
        raise StorageError(f"the journal has format {version}; this version reads {FORMAT}")
    _, moment, lines = rest
    return moment, lines, length + 1


class Tokens:
    """Numbers batches with a prefix that is this writer's alone."""

    def __init__(self) -> None:
        self._prefix = os.urandom(6).hex()
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count:x}"
