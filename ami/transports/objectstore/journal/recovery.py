"""Finds the end of a folder's journal by its checksums, after a start of the system or at its first use."""

import os

from ami.transports.objectstore.journal.damage import Confirmed
from ami.transports.objectstore.journal.frames import resynchronise, whole_frames
from ami.transports.objectstore.journal.segments import Segments
from ami.transports.objectstore.storage.errors import DamageError


def last_whole(segments: Segments, confirmed: Confirmed | None, is_durable: bool) -> tuple[int, int]:
    """Return (segment, length) of where the last segment's whole frames end, and cut off what comes after them.

    What was on disk for sure must be there: DamageError where it is not. Only under the lock.
    """
    numbers = segments.numbers()
    number = max(numbers, default=1)
    if confirmed is not None and number < confirmed.segment:
        raise DamageError(f"{segments.path(confirmed.segment)} is missing")
    if confirmed is not None and not numbers and confirmed.length:
        raise DamageError(f"{segments.path(number)} is missing")
    fd = segments.fd(number, create=True)
    content = segments.read(number, 0, os.fstat(fd).st_size)
    end = max((start + len(body) for start, body in whole_frames(content)), default=0)
    if is_durable and _is_short(content, (number, end), confirmed):
        path, size = segments.path(number), len(content)
        if confirmed is not None and size < confirmed.length:
            raise DamageError(f"{path} has {size} bytes; {confirmed.length} were written")
        raise DamageError(f"{path} is damaged at byte {end} of {size}")
    os.ftruncate(fd, end)
    return number, end


def _is_short(content: bytes, end: tuple[int, int], confirmed: Confirmed | None) -> bool:
    """Whether more was on disk than the whole frames up to ``end``; without a record, whether more frames follow."""
    if confirmed is None:
        return resynchronise(content, end[1] + 1) is not None
    return end < confirmed
