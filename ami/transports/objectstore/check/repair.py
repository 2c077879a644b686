"""Repairs a damaged queue in its folder: keeps each message that can be read, and sets aside what cannot be read."""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote

from rich.console import Console
from rich.table import Table

from ami.transports.objectstore.check.journal import read_queue
from ami.transports.objectstore.check.objects import ASIDE
from ami.transports.objectstore.check.salvage import Salvage
from ami.transports.objectstore.journal.damage import MARKER, Confirmed, read_marker, write_marker
from ami.transports.objectstore.journal.damage_guard import DamageGuard
from ami.transports.objectstore.journal.frames import HEADER_BYTES, LINK, frame, void
from ami.transports.objectstore.journal.place import Place
from ami.transports.objectstore.journal.segments import Segments
from ami.transports.objectstore.journal.snapshots import Snapshots
from ami.transports.objectstore.journal.tail import Tail, this_boot
from ami.transports.objectstore.queue import opcodes as op
from ami.transports.objectstore.queue.batch import Tokens, encode, encode_line
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.snapshot import dump
from ami.transports.objectstore.storage.errors import DamageError

#: Messages that are appended again share a batch up to this size.
BATCH_BYTES = 4 * 1024**2


@dataclass
class Repair:
    """What was done to one queue: the messages that it holds now, and what could not be read.

    ``unreadable``: messages that are known to be lost; a damaged batch may have held others. ``aside``: the folder with
    the unreadable bytes. ``flagged``: its messages are delivered as redelivered, since acknowledgements may be lost.
    """

    queue: str
    kept: int = 0
    unreadable: int = 0
    parts: int = 0
    bytes: int = 0
    flagged: bool = False
    aside: str = ""


def repair_queue(folder: Path, *, is_transient: bool = False) -> Repair | None:
    """Repair the queue in a folder; return None for one without damage. Processes wait meanwhile, and read it anew.

    Raises StorageError for a journal of a newer version, or where the disk refuses.
    """
    if not read_queue(folder, is_transient=is_transient).damage:
        return None
    place = Place(folder, True, lambda: None)
    try:
        return place.locked(lambda: _Repairer(folder, place).repair())
    finally:
        place.close()


def mark(folder: Path, sentence: str) -> None:
    """Let the queue in a folder accept no message. Raises StorageError and OSError where it cannot be written to."""
    place = Place(folder, True, lambda: None)
    guard = DamageGuard(folder, place, Segments(folder), Snapshots(folder, True))
    try:
        place.locked(lambda: guard.remember(DamageError(sentence), this_boot()))
    finally:
        place.close()


def print_repairs(folder: Path, repairs: list[Repair], objects: list[str], failures: list[str]) -> None:
    """Print a row for each queue that was repaired, and what else was done."""
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    table = Table("queue", "messages kept", "messages lost", "unreadable parts", "bytes set aside", box=None)
    for one in repairs:
        table.add_row(one.queue, *(f"{count:,}" for count in (one.kept, one.unreadable, one.parts, one.bytes)))
    if repairs:
        console.print(table)
    for one in repairs:
        again = "; its messages are delivered flagged as redelivered" if one.flagged else ""
        console.print(f"{one.queue}: unreadable bytes are in {one.aside}{again}", soft_wrap=True)
    for path in objects:
        console.print(f"set aside: {path}; declare the queues again, or start the workers", soft_wrap=True)
    for failure in failures:
        console.print(f"FAILED: {failure}", soft_wrap=True)
    if not (repairs or objects or failures):
        console.print(f"{folder}: nothing is damaged")


class _Repairer:
    """Writes the state into a new segment's end and a snapshot there; each step leaves a queue that can be repaired."""

    def __init__(self, folder: Path, place: Place) -> None:
        self._folder = folder
        self._place = place
        self._salvage = Salvage(folder)
        self._aside = folder.parent / ASIDE / f"{folder.name}-{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 10**9}"

    def repair(self) -> Repair:
        salvage = self._salvage
        repair = Repair(unquote(self._folder.name), len(salvage.state.entries), len(salvage.lost))
        repair.flagged = salvage.has_lost_batches
        repair.parts = len(salvage.gaps) + len(salvage.extras) + len(salvage.snapshots) + len(salvage.missing)
        repair.bytes = sum(len(gap.content) for gap in [*salvage.gaps, *salvage.extras])
        repair.bytes += sum(path.stat().st_size for path in salvage.snapshots)
        repair.aside = str(self._aside)
        if read_marker(self._folder) is None:
            # A repair that is killed is repeated.
            write_marker(self._folder, f"the repair of {self._folder} was interrupted", lambda: _to_disk(self._folder))
        self._set_aside(repair)
        tail = self._write_segment()
        self._place.write_tail(tail)
        snapshots = Snapshots(self._folder, durable=True)
        snapshots.name(snapshots.write((tail.segment, tail.length), dump(salvage.state)))
        _to_disk(self._folder)
        self._fill_gaps()
        self._reopen(tail)
        return repair

    def _set_aside(self, repair: Repair) -> None:
        """Copy the unreadable bytes, to disk."""
        self._aside.mkdir(parents=True, mode=0o700)
        for gap in [*self._salvage.gaps, *self._salvage.extras]:
            _write(self._aside / f"{gap.segment:08d}.log-{gap.start}-{gap.end}", gap.content)
        for path in self._salvage.snapshots:
            _write(self._aside / path.name, path.read_bytes())
        _write(self._aside / "report.json", json.dumps(asdict(repair), indent=2).encode())
        for folder in (self._aside, self._aside.parent, self._folder.parent):
            _to_disk(folder)

    def _write_segment(self) -> Tail:
        """Begin a segment with the messages that lay inside the gaps; return the new tail."""
        number, state = self._salvage.last + 1, self._salvage.state
        for extra in self._salvage.extras:
            os.truncate(self._path(extra.segment), extra.start)
        content = bytearray(frame(LINK + self._salvage.final_length(self._salvage.last).to_bytes(8, "little")))
        tokens = Tokens()
        for part in _parts(self._salvage.moved):
            lines = [[op.MOVED, entry.id, entry.length] for entry, _ in part]
            payloads = [payload for _, payload in part]
            body, at = encode(state.now, [encode_line(line) for line in lines], payloads, tokens.next())
            state.apply(state.now, lines, number, len(content) + HEADER_BYTES + at)
            content += frame(body)
        _write(self._path(number), bytes(content))
        _to_disk(self._folder)
        return Tail(this_boot(), number, len(content))

    def _fill_gaps(self) -> None:
        for gap in self._salvage.gaps:
            fd = os.open(self._path(gap.segment), os.O_RDWR | os.O_CLOEXEC)
            try:
                os.pwrite(fd, void(gap.end - gap.start), gap.start)
                os.fsync(fd)
            finally:
                os.close(fd)
        for path in self._salvage.snapshots:
            path.unlink(missing_ok=True)

    def _reopen(self, tail: Tail) -> None:
        """Let every process open the queue again, and accept messages: the tail is another file."""
        partial = self._folder / ".tail"
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            tail.write(fd)
            os.fsync(fd)
        finally:
            os.close(fd)
        self._place.confirm(*Confirmed(tail.segment, tail.length))
        partial.rename(self._folder / "tail")
        (self._folder / MARKER).unlink(missing_ok=True)
        _to_disk(self._folder)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.log"


def _parts(moved: list[tuple[Entry, bytes]]) -> list[list[tuple[Entry, bytes]]]:
    parts: list[list[tuple[Entry, bytes]]] = []
    size = BATCH_BYTES
    for entry, payload in moved:
        if size >= BATCH_BYTES:
            parts.append([])
            size = 0
        parts[-1].append((entry, payload))
        size += len(payload)
    return parts


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _to_disk(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
