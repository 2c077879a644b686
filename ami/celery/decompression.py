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


def install() -> None:
    """Replace the decoders of this process. A format without a bounded decoder (brotli, zstd) is refused."""
    bounded: dict[str, Callable[[], Any]] = {
        "application/x-gzip": zlib.decompressobj,
        "application/x-bz2": bz2.BZ2Decompressor,
        "application/x-lzma": lambda: lzma.LZMADecompressor(memlimit=LZMA_MEMORY_BYTES),
    }
    for content_type in compression.encoders():
        make = bounded.get(content_type)
        decoder = _bounded(make) if make else _refused(content_type)
        compression.register(compression.get_encoder(content_type)[0], decoder, content_type)


def _bounded(make: Callable[[], Any]) -> Callable[[bytes], bytes]:
    def decompress(content: bytes) -> bytes:
        decompressor = make()
        try:
            body: bytes = decompressor.decompress(content, MAX_BODY_BYTES + 1)
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise DecompressionError(f"its compressed body is damaged: {type(error).__name__}") from error
        if len(body) > MAX_BODY_BYTES:
            raise DecompressionError(f"its body has more than {MAX_BODY_BYTES} bytes when decompressed")
        if not decompressor.eof:
            raise DecompressionError("its compressed body is incomplete")
        return body

    return decompress


def _refused(content_type: str) -> Callable[[bytes], bytes]:
    def refuse(_: bytes) -> bytes:
        raise DecompressionError(f"{content_type} is not accepted")

    return refuse
