"""What a folder's journal remembers of its damage, and what a writer can find out without reading all of it."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ami.transports.objectstore.journal.frames import HEADER_BYTES, LINK, frames, whole_frames
from ami.transports.objectstore.journal.segments import Segments
from ami.transports.objectstore.journal.snapshots import Snapshots
from ami.transports.objectstore.journal.tail import Tail
from ami.transports.objectstore.storage.errors import DamageError

#: The file in a queue's folder that holds the sentence with which reading failed.
MARKER = "damaged"

#: The size of the frame that a segment begins with, and which holds the length of the one before.
LINK_BYTES = HEADER_BYTES + len(LINK) + 8

_CONFIRMED = struct.Struct("<QQ")
_CHECKED = struct.Struct("<QQI")


def write_marker(folder: Path, sentence: str, to_disk: Callable[[], None]) -> None:
    """Let every later writer refuse messages with this sentence, also after a start of the system."""
    partial = folder / f".{MARKER}"
    with partial.open("w") as file:
        file.write(sentence)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(folder / MARKER)
    to_disk()


def read_marker(folder: Path) -> str | None:
    """Return the sentence, None where no damage was found."""
    try:
        return (folder / MARKER).read_text(errors="replace") or f"{folder} is damaged"
    except FileNotFoundError:
        return None


def refused(folder: Path, sentence: str) -> DamageError:
    """Return the error for a message that a damaged queue does not accept."""
    return DamageError(
        f"{sentence}; no message is accepted before `python -m ami.transports.objectstore check --repair {folder}`"
    )


class Confirmed(NamedTuple):
    """A place in the journal up to which everything is on disk; written into the lock's file after a sync, unsynced.

    Processes overwrite it in any order, so it may be behind and is never ahead.
    """

    segment: int
    length: int

    def write(self, fd: int) -> None:
        packed = _CONFIRMED.pack(*self)
        os.pwrite(fd, packed + struct.pack("<I", zlib.crc32(packed)), 0)

    @classmethod
    def read(cls, fd: int) -> "Confirmed | None":
        """Return it, None where it is missing or torn."""
        content = os.pread(fd, _CHECKED.size, 0)
        if len(content) < _CHECKED.size or zlib.crc32(content[: _CONFIRMED.size]) != _CHECKED.unpack(content)[2]:
            return None
        return cls(*_CONFIRMED.unpack(content[: _CONFIRMED.size]))


def verify(segments: Segments, snapshots: Snapshots, tail: Tail) -> None:
    """Check what takes no reading of the whole journal: its files, their lengths, and the last segment's frames.

    Raises DamageError. Only under the lock.
    """
    numbers = set(segments.numbers())
    first = snapshots.newest_of_its_length()
    if first is None and numbers and min(numbers) != 1:
        raise DamageError(f"{segments.path(1).parent} has no whole snapshot, and its first segments are missing")
    for number in range(first or 1, tail.segment + 1):
        if number not in numbers:
            raise DamageError(f"{segments.path(number)} is missing")
        if number > (first or 1):
            _verify_link(segments, number)
    path = str(segments.path(tail.segment))
    for _ in frames(segments.read(tail.segment, 0, tail.length), 0, path):
        pass


def _verify_link(segments: Segments, number: int) -> None:
    content = segments.read(number, 0, min(LINK_BYTES, segments.size(number)))
    for _, body in whole_frames(content):
        if body[:1] == LINK:
            check_length(segments, number - 1, int.from_bytes(body[1:], "little"))


def check_length(segments: Segments, number: int, length: int) -> None:
    """Raise DamageError where a segment lost whole frames, which its checksums do not show."""
    if (size := segments.size(number)) != length:
        raise DamageError(f"{segments.path(number)} has {size} bytes; {length} were written")
