"""The store of one queue: commits the commands of all its threads in batches, and keeps its state."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ami.transports.objectstore.journal.port import Follower, Journal
from ami.transports.objectstore.queue import opcodes as op
from ami.transports.objectstore.queue import snapshot as snapshots
from ami.transports.objectstore.queue.batch import Tokens, decode, encode, encode_line
from ami.transports.objectstore.queue.commands import Command, Sweep
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.garbage import collections_paused
from ami.transports.objectstore.queue.pending_commit import BLIND, PendingCommit
from ami.transports.objectstore.queue.shortener import Shortener
from ami.transports.objectstore.queue.state import State
from ami.transports.objectstore.storage.errors import JQueueError, StorageError, StorageFullError

log = logging.getLogger(__name__)

#: Commands of several callers share a batch up to this size.
BATCH_BYTES = 4 * 1024**2

#: A store that is not claimed from or read for so long appends without reading again.
FOLLOWING_SECONDS = 5.0


class Store:
    """One queue in one journal. Synchronous and thread-safe; one per process and queue.

    Commands that threads commit at the same time share a batch, and with it a write to the disk. A process that only
    publishes appends without reading the queue.
    """

    def __init__(self, journal: Journal) -> None:
        self.lock = threading.RLock()
        self._journal = journal
        self._state = State()
        self._followed_at: float | None = None
        #: Whether a batch is being applied: an interruption leaves a state that no other process has.
        self._is_applying = False
        self._shortener = Shortener(journal, self._read, self._append_moved)
        self._pending: deque[PendingCommit] = deque()
        self._tokens = Tokens()

    def commit(self, commands: Sequence[Command], *, durable: bool = True, is_exact: bool = False) -> list[Any]:
        """Append the commands and return their answers, in order; an answer may be an exception instance.

        A durable commit is on disk when this returns. An `Enqueue` of a store that only publishes answers True also
        for a message that was stored before, or that a full queue rejected, unless the commit ``is_exact``.

        Raises:
            StorageError: the storage failed; it is unknown whether the commands were stored.
            CASConflictError: other writers were faster too many times over; nothing was stored.
            TypeError, ValueError: a command holds something of another type, or all together are too large.
        """
        mine = PendingCommit(commands, durable, is_exact)
        self._pending.append(mine)
        with self.lock:
            while not mine.is_done:
                self._commit_pending()
        if mine.error is not None:
            raise mine.error
        assert mine.answers is not None
        return mine.answers

    def look(self) -> State:
        """Return the state with all that any writer has appended; hold ``lock`` while reading it."""
        with self.lock:
            try:
                with collections_paused() if self._followed_at is None else nullcontext():
                    self._journal.follow(self)
            except BaseException as error:
                self._recover_from(error)
                if isinstance(error, OSError):
                    raise StorageError(f"the storage failed: {error}", error) from error
                raise
            self._followed_at = time.monotonic()
            return self._state

    @property
    def holds_buried(self) -> bool:
        """Whether a message waits to be moved to its dead-letter queue, as far as this process has read."""
        return bool(self._state.buried)

    def is_due(self) -> bool:
        """Whether a claim would find a message now, or a message has expired."""
        moment = time.time()
        with self.lock:
            state = self.look()
            return state.has_work(moment) or state.is_overdue(moment) or bool(state.buried)

    def payload(self, entry: Entry) -> bytes:
        """Return the bytes of a message. Raises StorageError where they are damaged."""
        with self.lock:
            place = entry.segment, entry.offset
            try:
                return self._read(entry)
            except StorageError:
                # Another process may have moved it, and dropped its segment.
                now = self.look().entries.get(entry.id)
                if now is None or (now.segment, now.offset) == place:
                    raise
                return self._read(now)

    def _read(self, entry: Entry) -> bytes:
        return self._journal.read(entry.segment, entry.offset, entry.length, entry.checksum)

    def close(self) -> None:
        """Close its files; the next use opens them again."""
        with self.lock:
            self._journal.close()

    def destroy(self) -> None:
        """Remove the queue with its messages."""
        with self.lock:
            self._journal.destroy()
            self.release()

    def destroy_if_read(self) -> bool:
        """Remove the queue, unless more was appended than was read here; then return False."""
        with self.lock:
            if not self._journal.destroy_if_followed():
                return False
            self.release()
            return True

    def release(self) -> None:
        """Free the memory of the state; the next use reads the queue again."""
        with self.lock:
            self._journal.forget()
            self._journal.close()
            self._state = State()
            self._shortener.reset()
            self._followed_at = None

    def stream(self, follower: Follower) -> None:
        """Feed the whole journal to ``follower``; no state is kept here. Raises StorageError.

        Only for a queue to which nothing but `Enqueue` was ever committed. `destroy_if_read` may follow.
        """
        with self.lock:
            self.release()
            try:
                self._journal.follow(follower)
            except BaseException:
                self._journal.forget()
                raise

    @property
    def is_followed(self) -> bool:
        """Whether this process holds its state."""
        return self._followed_at is not None

    # The journal's follower.

    def reset(self, snapshot: bytes | None) -> None:
        """Start from a snapshot, or from nothing."""
        self._state = snapshots.load(snapshot) if snapshot else State()
        self._shortener.open(len(snapshot or b""))

    def feed(self, segment: int, offset: int, body: bytes) -> None:
        """Apply a batch of another writer."""
        moment, lines, payloads_at = decode(body)
        self._apply(moment, lines, segment, offset + payloads_at)

    def _apply(self, moment: float, lines: list[list[Any]], segment: int, offset: int) -> list[Any]:
        self._is_applying = True
        answers = self._state.apply(moment, lines, segment, offset)
        self._is_applying = False
        return answers

    def _recover_from(self, error: BaseException) -> None:
        """Discard the state, unless the journal failed: then it matches the journal's position."""
        if self._is_applying or not isinstance(error, JQueueError):
            self._journal.forget()
            self._followed_at = None
            self._is_applying = False

    # Committing.

    def _commit_pending(self) -> None:
        """Commit pending commands in one batch, up to its size. Only under the lock."""
        batch: list[PendingCommit] = []
        size = 0
        for number in range(len(self._pending)):
            size += self._pending[number].size
            if batch and size > BATCH_BYTES:
                break
            batch.append(self._pending[number])
        try:
            batch = self._accepted(batch, self._refusal(batch))
            try:
                self._append(batch)
            except StorageFullError as error:
                # What does not add messages may use the reserve.
                batch = self._accepted(batch, error)
                if batch:
                    self._journal.make_room()
                    self._append(batch)
        except BaseException as error:
            self._recover_from(error)
            failure = error if isinstance(error, JQueueError) else StorageError(f"the storage failed: {error!r}", error)
            for one in batch:
                if one.answers is None:
                    one.error = failure
            if not isinstance(error, JQueueError | OSError):
                raise
        finally:
            while self._pending and self._pending[0].is_done:
                self._pending.popleft()

    def _refusal(self, batch: list[PendingCommit]) -> StorageError | None:
        """Return why the journal takes no message; None also where the batch adds none."""
        return self._journal.refusal() if any(one.accepts for one in batch) else None

    @staticmethod
    def _accepted(batch: list[PendingCommit], refusal: StorageError | None) -> list[PendingCommit]:
        """Return those that add no message; where ``refusal`` is not None, it is the error of the others."""
        if refusal is None:
            return batch
        for one in batch:
            if one.accepts:
                one.error = refusal
        return [one for one in batch if not one.accepts]

    def _append(self, batch: list[PendingCommit]) -> None:
        lines = [line for one in batch for line in one.lines]
        if not batch or self._answered_without(batch, lines):
            return
        blind = self._is_publisher() and all(one.is_blind for one in batch)
        payloads = [payload for one in batch for payload in one.payloads]
        moment = max(time.time(), self._state.now)
        encoded = [each for one in batch for each in one.encoded]
        body, payloads_at = encode(moment, encoded, payloads, self._tokens.next())
        durable = any(one.durable for one in batch)
        segment, offset = self._journal.append(body, None if blind else self, durable)
        if blind:
            answers: list[Any] = [True] * len(lines)
        else:
            # A writer whose clock is behind follows later moments than its own; the state's never decreases.
            answers = self._apply(moment, lines, segment, offset + payloads_at)
            if any(line[0] not in BLIND for line in lines):
                self._followed_at = time.monotonic()
        for one in batch:
            one.answers, answers = answers[: len(one.lines)], answers[len(one.lines) :]
        if not blind:
            self._shortener.maintain(self._state)

    def _answered_without(self, batch: list[PendingCommit], lines: list[list[Any]]) -> bool:
        """Answer claims on an empty queue, without a batch."""
        if any(line[0] not in (op.CLAIM, op.TAKE) for line in lines):
            return False
        state, moment = self.look(), time.time()
        if any(state.has_work(moment, line[-1]) for line in lines):
            return False
        for one in batch:
            one.answers = [[] for _ in one.lines]
        return True

    def _is_publisher(self) -> bool:
        return self._followed_at is None or time.monotonic() - self._followed_at > FOLLOWING_SECONDS

    # Keeping the journal short.

    def shorten(self) -> None:
        """Drop what is not needed any more, on a full disk; the pause between two times follows what one takes."""
        if not self._shortener.is_urgent_time():
            return
        began = time.monotonic()
        with self.lock:
            try:
                self.commit([Sweep()], durable=False)
                self._shortener.maintain(self._state, is_urgent=True)
            except JQueueError as error:
                log.warning("Shortening a journal on a full disk failed; retrying later: %s", error)
        self._shortener.pause(time.monotonic() - began)

    def _append_moved(self, moved: Sequence[tuple[Entry, bytes]]) -> None:
        """Append the bytes of messages again. Only under the lock."""
        lines: list[list[Any]] = [[op.MOVED, entry.id, entry.length] for entry, _ in moved]
        payloads = [payload for _, payload in moved]
        moment = self._state.now
        body, payloads_at = encode(moment, [encode_line(line) for line in lines], payloads, self._tokens.next())
        segment, offset = self._journal.append(body, self, durable=True)
        self._apply(moment, lines, segment, offset + payloads_at)
