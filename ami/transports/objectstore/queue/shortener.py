"""Keeps the journal of a queue short: saves snapshots, and empties segments of which little is needed."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from ami.transports.objectstore.journal.port import Journal
from ami.transports.objectstore.queue import snapshot as snapshots
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.entry_index import LINE_BYTES
from ami.transports.objectstore.queue.state import State
from ami.transports.objectstore.storage.errors import JQueueError, StorageError, StorageFullError

log = logging.getLogger(__name__)

#: A snapshot is due when so many bytes were appended since the last one, and a multiple of its own size.
SNAPSHOT_BYTES = 16 * 1024**2

#: On a full disk it is due earlier: it lets segments be dropped.
FULL_SNAPSHOT_BYTES = 256 * 1024

#: The shortest pause between two such times for a queue that nothing is written to.
SHORTEN_SECONDS = 2.0

#: A segment of which less than this share is needed is emptied into the journal's end, so that it can be dropped.
SPARSE_SHARE = 0.25
MOVED_AT_ONCE = 500

#: The most that is moved, of what was appended since the last snapshot; each moved byte frees three.
MOVED_SHARE = 0.5


class Shortener:
    """Not thread-safe: the lock of the queue's store guards it. ``read`` returns a message's bytes; ``append`` stores
    the bytes of messages again, at the journal's end.
    """

    def __init__(
        self,
        journal: Journal,
        read: Callable[[Entry], bytes],
        append: Callable[[Sequence[tuple[Entry, bytes]]], None],
    ) -> None:
        self._journal, self._read, self._append = journal, read, append
        self._urgent_at = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget what was known of a journal that is left or removed."""
        self._snapshot_bytes = self._put_off_to = 0
        self._is_opening = False
        #: Segments that were needed at the last snapshot: messages taken since may still be read from them.
        self._live: set[int] = set()

    def open(self, snapshot_bytes: int) -> None:
        """Begin with a snapshot of that size, 0 for none."""
        self._snapshot_bytes, self._is_opening = snapshot_bytes, True

    def maintain(self, state: State, *, is_urgent: bool = False) -> None:
        """Save a snapshot when one is due. A failure changes nothing that was committed."""
        if self._is_opening and not is_urgent:
            # The first message is not kept waiting: the next commit sees to it.
            self._is_opening = False
            return
        grown = self._journal.grown
        due = max(SNAPSHOT_BYTES, self._journal.snapshot_share * self._snapshot_bytes)
        if self._journal.is_full:
            due = min(due, FULL_SNAPSHOT_BYTES)
        if grown < max(due, self._put_off_to) and not is_urgent:
            return
        try:
            snapshot = snapshots.dump(state)
            self._snapshot_bytes, live = len(snapshot), set(state.in_segment)
            self._save(snapshot, live | self._live)
            self._live, self._put_off_to = live, 0
            self._empty_sparse_segments(state, int(grown * MOVED_SHARE))
        except (JQueueError, OSError) as error:
            log.warning("Shortening a journal failed; retrying later: %s", error)
            self._put_off_to = grown + due // 4

    def is_urgent_time(self) -> bool:
        """Whether the pause after the last urgent time is over."""
        return time.monotonic() >= self._urgent_at

    def pause(self, took_seconds: float) -> None:
        """Begin the pause after an urgent time that took so long."""
        self._urgent_at = time.monotonic() + max(SHORTEN_SECONDS, 20 * took_seconds)

    def _save(self, snapshot: bytes, live: set[int]) -> None:
        try:
            self._journal.save(snapshot, live)
        except StorageFullError:
            if not self._journal.make_room():
                raise
            self._journal.save(snapshot, live)

    def _empty_sparse_segments(self, state: State, most_bytes: int) -> None:
        """Append the last messages of old segments again; the next snapshot drops those segments."""
        journal = self._journal
        sparse = list(state.sparse(journal.position[0], int(journal.segment_bytes * SPARSE_SHARE)))
        for entries in _parts(sparse, journal.segment_bytes, most_bytes):
            moved = [(entry, payload) for entry in entries if (payload := self._readable(entry)) is not None]
            if moved:
                self._append(moved)

    def _readable(self, entry: Entry) -> bytes | None:
        """Return the bytes of a message; None where they are damaged, and its segment stays."""
        try:
            return self._read(entry)
        except StorageError as error:
            log.warning("Moving message %s failed: %s", entry.id, error, extra={"message_id": entry.id})
            return None


def _parts(entries: Iterable[Entry], bytes_each: int, bytes_together: int) -> Iterator[list[Entry]]:
    """Yield the first entries, in lists of about ``bytes_each``, ``bytes_together`` in all."""
    part: list[Entry] = []
    size = together = 0
    for entry in entries:
        part.append(entry)
        size += entry.length + LINE_BYTES
        together += entry.length + LINE_BYTES
        if size >= bytes_each or len(part) == MOVED_AT_ONCE or together >= bytes_together:
            yield part
            part, size = [], 0
        if together >= bytes_together:
            return
    if part:
        yield part
