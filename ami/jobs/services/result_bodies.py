"""The bodies of posted results, compressed: small ones in their rows, large ones in storage."""

import io
import zlib
from collections.abc import Iterable

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import storages

from ami.jobs.errors import ResultMissing
from ami.jobs.models import StoredResult

COMPRESSION = 1
GZIP = 31
CHUNK_BYTES = 1024**2
MOST_ROW_BYTES = 128 * 1024
"""Largest compressed body that is kept in its row; an object in storage costs more than a small column."""

Text = bytes | bytearray | memoryview


def attach(row: StoredResult, text: Text) -> None:
    """Compress a body and set it on an unsaved row; a large one is written to the storage.

    Raises:
        OSError: the storage failed.
    """
    packed = _packed(text)
    row.text_bytes, row.size_bytes = len(text), len(packed)
    if len(packed) <= MOST_ROW_BYTES:
        row.body = packed
    else:
        # A file without a row belongs to an aborted or a concurrent post. The storage then gives this file another
        # name, and the row decides which of the two files counts.
        row.name = storages["results"].save(row.key, ContentFile(packed))


def _packed(text: Text) -> bytes:
    packed = io.BytesIO()
    compress = zlib.compressobj(COMPRESSION, zlib.DEFLATED, GZIP)
    with memoryview(text) as view:
        for start in range(0, len(view), CHUNK_BYTES):
            packed.write(compress.compress(view[start : start + CHUNK_BYTES]))
    packed.write(compress.flush())
    return packed.getvalue()


def load(row: StoredResult) -> bytes | bytearray:
    """Return the JSON of the stored item: an object with ``reply_subject``, ``result`` and any other posted keys.

    Raises:
        ResultMissing: the body is missing, damaged, or larger than ANTENNA_RESULT_MAX_BYTES.
        OSError: the storage is unreachable.
    """
    try:
        text, is_whole = _unpacked(row.body) if row.body is not None else _read(row.name)
    except (FileNotFoundError, zlib.error) as error:
        raise ResultMissing(f"The body of {row.key} is missing or damaged: {error}") from error
    if len(text) > settings.ANTENNA_RESULT_MAX_BYTES:
        raise ResultMissing(f"The body of {row.key} is larger than ANTENNA_RESULT_MAX_BYTES.")
    if not is_whole:
        raise ResultMissing(f"The body of {row.key} is cut off.")
    return text


def _unpacked(packed: bytes) -> tuple[bytes, bool]:
    """Return a small body, and whether it is whole; at most one byte more than the limit."""
    unpack = zlib.decompressobj(GZIP)
    text = unpack.decompress(packed, settings.ANTENNA_RESULT_MAX_BYTES + 1)
    return text, unpack.eof


def _read(name: str) -> tuple[bytearray, bool]:
    """As `_unpacked`, piece by piece from the storage; at most one piece more than the limit."""
    text = bytearray()
    unpack = zlib.decompressobj(GZIP)
    with storages["results"].open(name, "rb") as file:
        while not unpack.eof and len(text) <= settings.ANTENNA_RESULT_MAX_BYTES:
            packed = unpack.unconsumed_tail or file.read(CHUNK_BYTES)
            piece = unpack.decompress(packed, CHUNK_BYTES)
            if not packed and not piece:
                break
            text += piece
    return text, unpack.eof


def delete(names: Iterable[str]) -> None:
    """Delete the bodies with these names from the storage; an empty name has none."""
    for name in names:
        if name:
            storages["results"].delete(name)
