"""The format of an object's file: a header by which a torn file is recognised, then the content."""

import struct
import zlib

TOKEN_BYTES = 16
_MARK = b"AOS1"
#: The mark, the token, the length of the content, and the checksum of all three but the mark.
_HEADER = struct.Struct(f">4s{TOKEN_BYTES}sQI")
HEADER_BYTES = _HEADER.size


class Torn(Exception):  # noqa: N818 - what the file is, not what went wrong
    """The file is not as it was written; the text says how."""


def header(token: bytes, content: bytes) -> bytes:
    """Return the 32 bytes that come before ``content``; ``token`` has 16 bytes."""
    return _HEADER.pack(_MARK, token, len(content), _checksum(token, content))


def unframed(framed: bytes) -> tuple[bytes, bytes]:
    """Return (token, content) of a whole file. Raises Torn where a byte is missing, added or another one."""
    token, length, checksum = _parts(framed)
    content = framed[HEADER_BYTES:]
    if len(content) != length:
        raise Torn(f"it holds {len(content)} bytes of {length}")
    if _checksum(token, content) != checksum:
        raise Torn("its checksum is another")
    return token, content


def token_of(framed: bytes) -> bytes:
    """Return the token of a file from its first 32 bytes, unchecked against the content. Raises Torn."""
    return _parts(framed)[0]


def _parts(framed: bytes) -> tuple[bytes, int, int]:
    if len(framed) < HEADER_BYTES:
        raise Torn(f"it holds {len(framed)} bytes, less than a header")
    mark, token, length, checksum = _HEADER.unpack_from(framed)
    if mark != _MARK:
        raise Torn("it does not begin like an object")
    return token, length, checksum


def _checksum(token: bytes, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(token + len(content).to_bytes(8)))
