"""A batch in a segment, with its length and checksum before it, so that a torn one is found and never served."""

import re
import struct
import zlib
from collections.abc import Iterator

from ami.transports.objectstore.storage.errors import DamageError

_HEADER = struct.Struct("<II")
HEADER_BYTES = _HEADER.size

#: Longer than any batch may be; a length beyond it is damage.
MAX_BODY_BYTES = 256 * 1024**2

#: What a frame's body begins with: a batch, the length of the segment before, or bytes that a repair set aside.
BATCH, LINK, VOID = b"[", b"\0", b"\1"

#: Where a frame may begin: a length of at most `MAX_BODY_BYTES`, a checksum, and one of these.
_CANDIDATE = re.compile(rb"(?s)(?=.{3}[\x00-\x10].{4}[\[\x00\x01])")


def frame(body: bytes) -> bytes:
    """Return ``body`` with its header. Raises ValueError for a body that is empty or longer than `MAX_BODY_BYTES`."""
    if not 0 < len(body) <= MAX_BODY_BYTES:
        raise ValueError(f"a batch of {len(body)} bytes; from 1 to {MAX_BODY_BYTES} fit")
    return _HEADER.pack(len(body), zlib.crc32(body)) + body


def length_of(header: bytes) -> int | None:
    """Return how many bytes the frame with this header has in all; None for a header that is too short."""
    return HEADER_BYTES + int(_HEADER.unpack(header)[0]) if len(header) == HEADER_BYTES else None


def verified(content: bytes, checksum: int, where: str, offset: int) -> bytes:
    """Return ``content``, which lies ``offset`` bytes behind the beginning of ``where``. Raises DamageError."""
    if zlib.crc32(content) != checksum:
        raise DamageError(f"{where} is damaged between byte {offset} and byte {offset + len(content)}")
    return content


def whole_frames(content: bytes, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield (where the body begins, the body) of every whole frame from ``at`` on; stop at the first that is not."""
    while at + HEADER_BYTES < len(content):
        length, checksum = _HEADER.unpack_from(content, at)
        start, end = at + HEADER_BYTES, at + HEADER_BYTES + length
        if not length or end > len(content):
            return
        body = content[start:end]
        if zlib.crc32(body) != checksum:
            return
        yield start, body
        at = end


def frames(content: bytes, at: int, where: str, base: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield every frame of ``content``, which must hold nothing else. Raises DamageError where it does.

    ``content`` lies ``base`` bytes behind the beginning of ``where``.
    """
    for start, body in whole_frames(content, at):
        yield start, body
        at = start + len(body)
    if at != len(content):
        raise DamageError(f"{where} is damaged at byte {base + at} of {base + len(content)}")


def resynchronise(content: bytes, at: int) -> int | None:
    """Return where the next whole frame of a batch or a link begins, from ``at`` on; None where there is none."""
    for found in _CANDIDATE.finditer(content, at):
        if next(whole_frames(content, found.start()), None) is not None:
            return found.start()
    return None


def void(length: int) -> bytes:
    """Return a frame of ``length`` bytes in all, which readers pass over; it takes the place of damaged bytes."""
    return frame(VOID + bytes(length - HEADER_BYTES - 1))
