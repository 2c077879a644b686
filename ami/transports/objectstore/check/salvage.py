"""Reads what can be read of a damaged queue: the messages, and the parts of its files that hold none."""

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ami.transports.objectstore.check.journal import confirmed_place, trusted_tail
from ami.transports.objectstore.journal.frames import (
    HEADER_BYTES,
    LINK,
    VOID,
    frames,
    resynchronise,
    whole_frames,
)
from ami.transports.objectstore.queue import opcodes as op
from ami.transports.objectstore.queue.batch import decode
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.limits import LengthLimit
from ami.transports.objectstore.queue.snapshot import load
from ami.transports.objectstore.queue.state import State
from ami.transports.objectstore.storage.errors import StorageError

#: The smallest frame that can fill a gap.
VOID_BYTES = HEADER_BYTES + 1

#: What is applied after a gap: the other commands depend on what was lost, such as which messages a claim found.
AFTER_A_GAP = (op.ENQUEUE, op.ACK, op.MOVED, op.PURGE, op.CONFIGURE, op.POWER_FAILURE)


class Gap(NamedTuple):
    """A part of a segment that cannot be read; ``content`` is what is left of it, maybe nothing."""

    segment: int
    start: int
    end: int
    content: bytes

    def holds(self, segment: int, offset: int) -> bool:
        return segment == self.segment and self.start <= offset < self.end


class Salvage:
    """The state of a queue after every batch that can be read. Only while the queue's lock is held.

    ``gaps``: what cannot be read, in order. ``snapshots``: damaged ones. ``moved``: messages that can be read inside a
    gap, with their bytes. ``lost``: the ids of the messages that are known and cannot be read. ``missing``: segments.
    ``extras``: what lies behind the end of a segment.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._place = (1, 0)
        self._tail = trusted_tail(folder)
        confirmed = confirmed_place(folder)
        self._numbers = sorted(int(path.stem) for path in folder.glob("*.log"))
        self.last = max(
            [*self._numbers, self._tail.segment if self._tail else 0, confirmed.segment if confirmed else 0]
        )
        #: How long each segment was, as far as the next one, the tail or the last sync tell.
        self._lengths: dict[int, int] = {}
        if self._tail is not None:
            self._lengths[self._tail.segment] = self._tail.length
        elif confirmed is not None:
            self._lengths[confirmed.segment] = confirmed.length
        self._sizes: dict[int, int] = {}
        self.state = State()
        self.gaps: list[Gap] = []
        self.snapshots: list[Path] = []
        self.moved: list[tuple[Entry, bytes]] = []
        self.lost: set[str] = set()
        self.missing: list[int] = []
        self.extras: list[Gap] = []
        self.has_lost_batches = False
        #: The queue's limit, which is not applied while claims may be missing: more seems to wait than did.
        self._limit: LengthLimit | None = None
        self._read_snapshots()
        self._read_segments()
        self._verify_messages()
        if self._limit is not None:
            self.state.limit = self._limit

    def _read_snapshots(self) -> None:
        for path in sorted(self._folder.glob("snapshot-*")):
            try:
                [(_, body)] = frames(path.read_bytes(), 0, str(path))
                state = load(body)
            except (StorageError, ValueError):
                self.snapshots.append(path)
                continue
            _, segment, offset = path.name.split("-")
            self.state, self._place = state, (int(segment), int(offset))

    def _read_segments(self) -> None:
        for number in self._numbers:
            content = self._path(number).read_bytes()
            for _, body in whole_frames(content[: HEADER_BYTES + 9]):
                if body[:1] == LINK:
                    self._lengths[number - 1] = int.from_bytes(body[1:], "little")
        for number in sorted({*self._numbers, *range(self._place[0], self.last + 1)}):
            if number in self._numbers:
                self._read_segment(number)
            else:
                self.missing.append(number)
                self._lost((number, self._lengths.get(number, 1)))

    def final_length(self, number: int) -> int:
        """Return how long a segment is when its gaps are filled and its extra bytes are cut off."""
        return max([self._sizes.get(number, 0), *(gap.end for gap in self.gaps if gap.segment == number)])

    def _read_segment(self, number: int) -> None:
        content, at = self._path(number).read_bytes(), 0
        length = self._lengths.get(number)
        if length is not None and len(content) > length and self._is_known(number):
            self.extras.append(Gap(number, length, len(content), content[length:]))
            content = content[:length]
        self._sizes[number] = len(content)
        while True:
            for start, body in whole_frames(content, at):
                at = start + len(body)
                if body[:1] not in (LINK, VOID):
                    self._apply(number, start, body)
            if at >= len(content):
                break
            end = resynchronise(content, at + 1)
            if end is None:
                self._gap(Gap(number, at, max(len(content), length or 0, at + VOID_BYTES), content[at:]))
                return
            gap = Gap(number, at, end, content[at:end])
            self._gap(gap, _with_room(gap, content))
            at = end
        if length is not None and length > at:
            self._gap(Gap(number, at, max(length, at + VOID_BYTES), b""))

    def _is_known(self, number: int) -> bool:
        """Whether the whole length of a segment is known; a sync tells a part of it only."""
        return number < self.last or self._tail is not None

    def _gap(self, gap: Gap, filled: Gap | None = None) -> None:
        """Lose what ``gap`` held; ``filled``: what a void frame will take the place of, if that is more."""
        self.gaps.append(filled or gap)
        self._lost((gap.segment, gap.end))
        with suppress(StorageError, ValueError, TypeError, IndexError, KeyError):
            self._apply_part(gap)

    def _lost(self, end: tuple[int, int]) -> None:
        """Batches before ``end`` are lost: whatever was in the queue may have been claimed or acknowledged there."""
        if end <= self._place:
            return
        self.has_lost_batches = True
        if self._limit is None:
            self._limit, self.state.limit = self.state.limit, LengthLimit()
        self._do([[op.RETURN, name, False, None] for name in self.state.leased])
        self._do([[op.POWER_FAILURE]])

    def _do(self, lines: list[list[Any]]) -> None:
        self.state.apply(self.state.now, lines, 0, 0)

    def _apply(self, number: int, start: int, body: bytes) -> None:
        moment, lines, at = decode(body)
        if (number, start) <= self._place:
            return
        self.lost.difference_update(line[1] for line in lines if line[0] == op.ACK)
        if not self.has_lost_batches:
            self.state.apply(moment, lines, number, start + at)
            return
        lines = [self._without_limit(line) for line in lines if line[0] in AFTER_A_GAP]
        self.state.apply(moment, lines, number, start + at)

    def _without_limit(self, line: list[Any]) -> list[Any]:
        if line[0] != op.CONFIGURE:
            return line
        self._limit = LengthLimit(*line[3:])
        return line[:3]

    def _apply_part(self, gap: Gap) -> None:
        """Apply the messages of a damaged batch whose own checksums are right, where its lines can be read."""
        if (gap.segment, gap.end) <= self._place:
            return
        body = gap.content[HEADER_BYTES:]
        moment, lines, at = decode(body)
        for line in lines:
            if line[0] == op.ENQUEUE:
                length, checksum = line[4], line[7]
            elif line[0] == op.MOVED and line[1] in self.state.entries:
                length, checksum = line[2], self.state.entries[line[1]].checksum
            else:
                at += line[2] if line[0] == op.MOVED else 0
                continue
            if zlib.crc32(body[at : at + length]) == checksum and at + length <= len(body):
                self.state.apply(moment, [line], gap.segment, gap.start + HEADER_BYTES + at)
            elif line[0] == op.ENQUEUE:
                self.lost.add(line[1])
            at += length
        if at < len(body):
            # Another damaged batch comes directly after it.
            self._apply_part(Gap(gap.segment, gap.start + HEADER_BYTES + at, gap.end, body[at:]))

    # The messages' own bytes.

    def _verify_messages(self) -> None:
        """Find the messages whose bytes are damaged, missing, or inside a gap."""
        lost: list[str] = []
        gaps = {number: [gap for gap in self.gaps if gap.segment == number] for number in self._numbers}
        for entry, payload in self._payloads():
            if payload is None or zlib.crc32(payload) != entry.checksum:
                lost.append(entry.id)
            elif any(gap.holds(entry.segment, entry.offset) for gap in gaps.get(entry.segment, ())):
                self.moved.append((entry, payload))
        self.lost.update(lost)
        for name in lost:
            # A message that is buried first is not remembered as acknowledged: it may be published again.
            self._do([[op.BURY, name, "damaged", None], [op.ACK, name]])
        if self.has_lost_batches:
            self._do([[op.POWER_FAILURE]])

    def _payloads(self) -> Iterator[tuple[Entry, bytes | None]]:
        fd, number = -1, 0
        try:
            for entry in sorted(self.state.entries.values(), key=lambda entry: (entry.segment, entry.offset)):
                if entry.segment != number:
                    if fd >= 0:
                        os.close(fd)
                    fd, number = self._open(entry.segment), entry.segment
                content = os.pread(fd, entry.length, entry.offset) if fd >= 0 else b""
                yield entry, content if len(content) == entry.length and fd >= 0 else None
        finally:
            if fd >= 0:
                os.close(fd)

    def _open(self, number: int) -> int:
        try:
            return os.open(self._path(number), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.log"


def _with_room(gap: Gap, content: bytes) -> Gap:
    """Return a gap that a void frame fits into: one that is too small takes the frame after it along.

    That frame's messages can be read: they count as lying inside the gap, and are moved.
    """
    if gap.end - gap.start >= VOID_BYTES:
        return gap
    start, body = next(whole_frames(content, gap.end))
    end = start + len(body)
    return Gap(gap.segment, gap.start, end, content[gap.start : end])
