"""The time in the EXIF data of a picture, from its first bytes."""

import re
import struct
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ami.main.services.file_times import time_in_text, zone_of

#: EXIF is one segment of at most 64 KiB, and cameras write it first.
HEAD_BYTES = 128 * 1024

EXIF_IFD = 0x8769
#: DateTimeOriginal, DateTimeDigitized and, in the first directory, DateTime; each with the tag of its offset.
TAGS = ((0x9003, 0x9011), (0x9004, 0x9012), (0x0132, 0x9010))
MAX_CHARACTERS = 64

JPEG, PNG, TIFF = b"\xff\xd8", b"\x89PNG\r\n\x1a\n", (b"II*\0", b"MM\0*")
RIFF, WEBP = b"RIFF", b"WEBP"
PNG_CHUNK, RIFF_CHUNK = ">I4s", "<4sI"
APP1, START_OF_SCAN = 0xE1, 0xDA
EXIF_HEADER = b"Exif\0\0"


def time_in_exif(head: bytes) -> datetime | None:
    """Return when a picture that begins with ``head`` was taken, None where its EXIF data does not say.

    It is DateTimeOriginal, else DateTimeDigitized, else DateTime. With an offset, in the text or in the tag beside it,
    it has that zone; without, it is the station's local time. JPEG, PNG, TIFF and WebP are read. It raises nothing,
    whatever the bytes are.
    """
    block = _block(head)
    if not block:
        return None
    from PIL import Image  # Most stations' names have the time.

    exif = Image.Exif()
    try:
        exif.load(block)
    except Exception:  # Pillow raises nearly anything on broken bytes.
        return None
    return next((moment for stamp, offset in _texts(exif) if (moment := _moment(stamp, offset))), None)


def _texts(exif: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts of each time and its offset; a tag that cannot be read is empty."""
    try:
        inner = exif.get_ifd(EXIF_IFD)
    except Exception:
        inner = {}
    for tags in TAGS:
        stamp, offset = (_text(inner, tag) or _text(exif, tag) for tag in tags)
        yield stamp, offset


def _text(values: Any, tag: int) -> str:
    try:
        value = values.get(tag)
    except Exception:
        return ""
    text = value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else ""
    return text[:MAX_CHARACTERS].strip("\0 ").split("\0")[0]


def _moment(stamp: str, offset: str) -> datetime | None:
    """Return the time that two texts of EXIF data name; an offset that is none is left out."""
    # Nothing is counted in EXIF data: what follows the seconds is a zone.
    timed = re.sub(r"(?<=[0-9])\s+(?=[0-9])", "T", re.sub(r"(?<=[:/]) (?=[0-9])", "0", stamp), count=1)
    padded = re.sub(r"(?<![0-9.,+-])([0-9])(?![0-9])", r"0\1", timed)
    # Some texts have no end.
    text = re.sub(r"[\W_\xff]+$", "", padded)
    moment = time_in_text(text)
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=zone_of(offset))


def _block(head: bytes) -> bytes:
    """Return the EXIF data as one segment of a JPEG, empty where none comes within the first bytes."""
    if head.startswith(JPEG):
        return _jpeg_block(head)
    if head.startswith(PNG):
        return _chunk(head, len(PNG), PNG_CHUNK, b"eXIf", after=4)
    if head.startswith(RIFF) and head[8:12] == WEBP:
        return _chunk(head, 12, RIFF_CHUNK, b"EXIF", after=0)
    return EXIF_HEADER + head if head.startswith(TIFF) else b""


def _jpeg_block(head: bytes) -> bytes:
    """Return the EXIF segment of a JPEG, empty where none comes before the picture."""
    place = len(JPEG)
    while place + 4 <= len(head) and head[place] == 0xFF:
        marker = head[place + 1]
        if marker == 0xFF:  # Filling.
            place += 1
            continue
        if marker == START_OF_SCAN:
            break
        (length,) = struct.unpack_from(">H", head, place + 2)
        segment = head[place + 4 : place + 2 + length]
        if marker == APP1 and segment.startswith(EXIF_HEADER):
            return segment
        place += 2 + max(2, length)
    return b""


def _chunk(head: bytes, place: int, form: str, name: bytes, after: int) -> bytes:
    """Return the EXIF data in the chunk ``name`` of a PNG or WebP; ``after`` bytes of a checksum follow each chunk."""
    while place + 8 <= len(head):
        fields = struct.unpack_from(form, head, place)
        length, kind = fields if form == PNG_CHUNK else reversed(fields)
        place += 8
        if kind == name:
            data = head[place : place + length]
            return data if data.startswith(EXIF_HEADER) else EXIF_HEADER + data
        place += length + (after or length % 2)
    return b""
