"""The time in the EXIF data of a picture, from its first bytes."""

import io
import re
import struct
from datetime import datetime

#: EXIF is one segment of at most 64 KiB, and cameras write it first.
HEAD_BYTES = 128 * 1024

EXIF_IFD, DATE_TIME_ORIGINAL, OFFSET_TIME_ORIGINAL = 0x8769, 0x9003, 0x9011
#: Year to second as the standard has it; some cameras write dashes in the date.
STAMP = re.compile(r"((?:19|20)\d\d)[:-](\d\d)[:-](\d\d)[ T](\d\d):(\d\d):(\d\d)")
OFFSET = re.compile(r"[+-](?:0\d|1[0-4]):[0-5]\d")

JPEG, PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
APP1, START_OF_SCAN = 0xE1, 0xDA
EXIF_HEADER = b"Exif\0\0"


def time_in_exif(head: bytes) -> datetime | None:
    """Return DateTimeOriginal of a JPEG or PNG that begins with ``head``, None where there is none.

    With OffsetTimeOriginal it has that zone. Without, it is the station's local time. Whatever the bytes are, it raises
    nothing.
    """
    block = _jpeg_block(head) if head.startswith(JPEG) else _png_block(head) if head.startswith(PNG) else b""
    if not block:
        return None
    from PIL import Image  # Most stations' names have the time.

    exif = Image.Exif()
    try:
        exif.load(block)
        values = exif.get_ifd(EXIF_IFD)
        return _moment(values.get(DATE_TIME_ORIGINAL), values.get(OFFSET_TIME_ORIGINAL))
    except Exception:  # Pillow raises nearly anything on broken bytes.
        return None


def _moment(stamp: object, offset: object) -> datetime | None:
    """Return the time that two texts of EXIF name; a wrong offset is none."""
    found = STAMP.fullmatch(stamp.strip("\0 ")) if isinstance(stamp, str) else None
    if found is None:
        return None
    zone = offset.strip("\0 ") if isinstance(offset, str) else ""
    year, month, day, hour, minute, second = found.groups()
    text = f"{year}-{month}-{day}T{hour}:{minute}:{second}{zone if OFFSET.fullmatch(zone) else ''}"
    return datetime.fromisoformat(text)


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


def _png_block(head: bytes) -> bytes:
    """Return the chunk ``eXIf`` of a PNG, empty where none comes within the first bytes."""
    stream = io.BytesIO(head)
    stream.seek(len(PNG))
    while len(start := stream.read(8)) == 8:
        length, kind = struct.unpack(">I4s", start)
        if kind == b"eXIf":
            return EXIF_HEADER + stream.read(min(length, HEAD_BYTES))
        stream.seek(length + 4, io.SEEK_CUR)
    return b""
