"""Decompresses message bodies up to a limit: kombu's own decoders let 100 KB become gigabytes."""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

from kombu import compression

from ami.celery.task_message import MAX_BODY_BYTES

#: The largest dictionary of an lzma stream.
LZMA_MEMORY_BYTES = 64 * 1024**2


class DecompressionError(ValueError):
    """A body that is damaged, or larger than it may be."""


#: By content type, what decompresses; a format that is missing (brotli, zstd) is refused.
BOUNDED: dict[str, Callable[[], Any]] = {
    "application/x-gzip": zlib.decompressobj,
    "application/x-bz2": bz2.BZ2Decompressor,
    "application/x-lzma": lambda: lzma.LZMADecompressor(memlimit=LZMA_MEMORY_BYTES),
}


def install() -> None:
    """Replace the decoders of this process."""
    for content_type in compression.encoders():
        compression.register(compression.get_encoder(content_type)[0], decoder(content_type), content_type)


def decoder(content_type: str, most_bytes: int = MAX_BODY_BYTES) -> Callable[[bytes], bytes]:
    """Return what decompresses a body of this type up to ``most_bytes``; it raises `DecompressionError`."""
    make = BOUNDED.get(content_type)
    return _bounded(make, most_bytes) if make else _refused(content_type)


def _bounded(make: Callable[[], Any], most_bytes: int) -> Callable[[bytes], bytes]:
    def decompress(content: bytes) -> bytes:
        decompressor = make()
        try:
            body: bytes = decompressor.decompress(content, most_bytes + 1)
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise DecompressionError(f"its compressed body is damaged: {type(error).__name__}") from error
        if len(body) > most_bytes:
            raise DecompressionError(f"its body has more than {most_bytes} bytes when decompressed")
        if not decompressor.eof:
            raise DecompressionError("its compressed body is incomplete")
        return body

    return decompress


def _refused(content_type: str) -> Callable[[bytes], bytes]:
    def refuse(_: bytes) -> bytes:
        raise DecompressionError(f"{content_type} is not accepted")

    return refuse
