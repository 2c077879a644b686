"""Reads the journal of a queue in a folder as far as it can be read; without its lock, unless it looks damaged."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from ami.transports.objectstore.broker.expiry_marks import SWEEP
from ami.transports.objectstore.journal.damage import Confirmed, read_marker
from ami.transports.objectstore.journal.frames import LINK, VOID, frames, whole_frames
from ami.transports.objectstore.journal.tail import Tail, this_boot
from ami.transports.objectstore.queue.batch import decode
from ami.transports.objectstore.queue.snapshot import load
from ami.transports.objectstore.queue.state import State
from ami.transports.objectstore.storage.errors import StorageError

#: How often to retry a tail that was read while it was written.
TRIES = 5

#: How long to retry a queue whose files were removed between listing and opening them.
PATIENCE_SECONDS = 10.0
RETRY_SECONDS = 0.01


@dataclass
class Report:
    """The content of one queue, as far as it could be read; ``damage`` has a sentence for each defect.

    ``bytes``: the size of all its segments and snapshots. ``notes``: what its next writer will repair.
    ``marks``: how many of ``waiting`` only say when a queue is to be swept of expired messages.
    ``is_readable``: a process that begins now can read it; damage before its snapshot costs single messages at most.
    ``is_busy``: it changed during every read, so nothing is known; that is not damage.
    """

    queue: str
    waiting: int = 0
    leased: int = 0
    buried: int = 0
    segments: int = 0
    bytes: int = 0
    is_busy: bool = False
    marks: int = 0
    is_readable: bool = True
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_queue(folder: Path, *, is_transient: bool = False) -> Report:
    """Return the content of the queue in a folder; processes may use it meanwhile.

    A transient queue need not survive a power failure: where it did not, its next writer empties it.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while folder.exists():
        with suppress(FileNotFoundError), ExitStack() as files:
            report = _Reading(folder, files).report(is_transient)
            if not report.damage:
                return report
        # Writers may have caused it between two reads; under the lock they wait.
        if (report_of_all := _read_locked(folder, is_transient, deadline)) is not None:
            return report_of_all
        if time.monotonic() > deadline:
            break
    report = Report(unquote(folder.name))
    if folder.exists():
        report.is_busy = True
        report.notes.append(f"{report.queue}: it changed during each read; check it again when less is written to it")
    else:
        report.notes.append(f"{report.queue}: it was deleted meanwhile")
    return report


def _read_locked(folder: Path, is_transient: bool, deadline: float) -> Report | None:
    """Read it while no process writes to it; None where its lock was not free in time, or it was removed."""
    with suppress(FileNotFoundError), _lock(folder, deadline) as is_held:
        if is_held:
            with ExitStack() as files:
                return _Reading(folder, files).report(is_transient)
    return None


@contextmanager
def _lock(folder: Path, deadline: float) -> Iterator[bool]:
    """Hold the lock of a queue, which is not made where there is none: then no process uses it."""
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield folder.exists()
        return
    try:
        is_held = False
        while not is_held and time.monotonic() < deadline:
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_held = True
            if not is_held:
                time.sleep(RETRY_SECONDS)
        yield is_held and os.path.samestat(os.stat(folder / "lock"), os.fstat(fd))
    finally:
        os.close(fd)


class _Reading:
    """One pass over a queue's files; all are opened first, so that a file removed later is still read whole."""

    def __init__(self, folder: Path, files: ExitStack) -> None:
        self._report = Report(unquote(folder.name))
        self._folder = folder
        # Before the segments: they are at least as long as it says.
        self._tail = trusted_tail(folder)
        self._segments = {int(path.stem): files.enter_context(path.open("rb")) for path in folder.glob("*.log")}
        self._numbers = sorted(self._segments)
        # After the segments: a newer snapshot needs fewer of them, never one that was removed before it was written.
        self._snapshots: list[tuple[Path, IO[bytes]]] = [
            (path, files.enter_context(path.open("rb"))) for path in sorted(folder.glob("snapshot-*"))
        ]
        #: The state so far, and the place it starts from; it is not whole where a part could not be read.
        self._state, self._place, self._is_whole = State(), (1, 0), True
        self._sizes: dict[int, int] = {}
        self._links: dict[int, int] = {}

    def report(self, is_transient: bool) -> Report:
        """Raises FileNotFoundError where a writer shortened the journal since it was listed."""
        report = self._report
        self._read_snapshots()
        for number in self._numbers:
            self._read_segment(number)
        self._compare()
        if not report.damage and (sentence := read_marker(self._folder)) is not None:
            report.damage.append(f"{sentence} (found before; accept messages again with --repair)")
        state = self._state
        report.waiting, report.leased, report.buried = state.depth(), len(state.leased), len(state.buried)
        report.marks = sum(entry.entrypoint == SWEEP for entry in state.entries.values() if entry.is_waiting)
        report.is_readable = self._is_whole
        if not self._is_whole:
            report.notes.append(f"{report.queue}: the counts are those up to the damage")
        if is_transient and self._tail is None:
            report.notes += [f"{one}; its next writer empties it after the power failure" for one in report.damage]
            report.damage.clear()
        return report

    def _read_snapshots(self) -> None:
        """Start from the newest whole one."""
        for path, file in self._snapshots:
            content = file.read()
            self._report.bytes += len(content)
            try:
                [(_, body)] = frames(content, 0, str(path))
                state = load(body)
            except (StorageError, ValueError) as error:
                self._report.damage.append(str(error) if isinstance(error, StorageError) else f"{path} is empty")
                continue
            _, segment, offset = path.name.split("-")
            self._state, self._place = state, (int(segment), int(offset))

    def _read_segment(self, number: int) -> None:
        """Check every frame, and apply those after the snapshot, up to the first that cannot be read."""
        content = self._bytes_that_count(number)
        self._sizes[number] = len(content)
        try:
            for start, body in frames(content, 0, str(self._path(number))):
                if body[:1] == LINK:
                    self._links[number - 1] = int.from_bytes(body[1:], "little")
                elif body[:1] != VOID and (number, start) > self._place:
                    self._apply(number, start, body)
        except StorageError as error:
            self._report.damage.append(str(error))
            self._is_whole = self._is_whole and number < self._place[0]

    def _apply(self, number: int, start: int, body: bytes) -> None:
        moment, lines, at = decode(body)
        if self._is_whole:
            self._state.apply(moment, lines, number, start + at)

    def _bytes_that_count(self, number: int) -> bytes:
        """Return a segment without the bytes that a killed writer or a power failure left behind its end."""
        path = self._path(number)
        content = self._segments[number].read()
        self._report.segments += 1
        self._report.bytes += len(content)
        if self._tail is not None:
            if number < self._tail.segment:
                return content
            length = self._tail.length if number == self._tail.segment else 0
            if len(content) < length:
                self._report.damage.append(f"{path} has {len(content)} bytes; {length} were written")
            return content[:length]
        if number < self._numbers[-1]:
            return content
        end = max((start + len(body) for start, body in whole_frames(content)), default=0)
        if left := len(content) - end:
            self._report.notes.append(f"{path}: its last {left} bytes are not a whole batch and will be cut off")
        return content[:end]

    def _compare(self) -> None:
        """Find segments that are missing or have lost whole batches, which their own frames do not show."""
        for number, length in self._links.items():
            if (size := self._sizes.get(number, length)) != length:
                self._report.damage.append(f"{self._path(number)} has {size} bytes; {length} were written")
        last = self._last_segment()
        needed = {*range(self._place[0], last + 1), *self._state.in_segment} if last else set()
        for number in sorted(needed.difference(self._numbers)):
            if self._path(number).exists() or not self._folder.exists():
                raise FileNotFoundError("the folder changed while it was read")
            self._report.damage.append(f"{self._path(number)} is missing")
            self._is_whole = False

    def _last_segment(self) -> int:
        """Return the number of the last segment that was written; raises FileNotFoundError for a removed folder."""
        if self._tail:
            return self._tail.segment
        last, confirmed = max(self._numbers, default=0), confirmed_place(self._folder)
        if confirmed is None:
            return last
        if last == confirmed.segment and self._sizes[last] < confirmed.length:
            self._report.damage.append(
                f"{self._path(last)} has {self._sizes[last]} bytes that can be read; {confirmed.length} were written"
            )
            self._is_whole = False
        return max(last, confirmed.segment)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.log"


def trusted_tail(folder: Path) -> Tail | None:
    """Return the tail, None where another start of the system wrote it: the checksums show the journal's end."""
    for _ in range(TRIES):
        try:
            with (folder / "tail").open("rb") as file:
                tail = Tail.read(file.fileno())
        except FileNotFoundError:
            return None
        # None is also read while it is written.
        if tail is not None:
            return tail if tail.is_of(this_boot()) else None
    return None


def confirmed_place(folder: Path) -> Confirmed | None:
    """Return the place up to which everything was on disk for sure, None where it is not known."""
    with suppress(FileNotFoundError), (folder / "lock").open("rb") as file:
        return Confirmed.read(file.fileno())
    return None
