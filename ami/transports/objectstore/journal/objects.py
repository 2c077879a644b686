"""A journal in any storage: a head that is compared and set, and immutable objects for what does not fit into it."""

import time
import uuid
from contextlib import suppress

from ami.transports.objectstore.journal.backoff import LONGEST_PAUSE_SECONDS, pauses_seconds
from ami.transports.objectstore.journal.closed import SEGMENTS, SNAPSHOTS, ClosedSegments
from ami.transports.objectstore.journal.frames import HEADER_BYTES, frame, frames, verified
from ami.transports.objectstore.journal.head import Head
from ami.transports.objectstore.journal.port import BehindError, Follower
from ami.transports.objectstore.storage.errors import CASConflictError, StorageError
from ami.transports.objectstore.storage.port import Storage

#: The size of the open segment; every commit writes it again, so it bounds the bytes of a commit.
SEGMENT_BYTES = 64 * 1024

#: The same where a commit crosses no network.
NEAR_SEGMENT_BYTES = 256 * 1024

#: A head older than this is read before it is written: another process may have written since.
HEAD_SECONDS = 0.5

#: How often a commit is tried against faster writers.
TRIES = 40

#: How often a storage that fails is asked again before the caller hears of it.
STORAGE_TRIES = 4

#: How often a newer head is read for what an older one named and others removed meanwhile.
BEHIND_TRIES = 5


class ObjectJournal:
    """One queue's journal under ``prefix`` of a storage.

    A commit is one replace of the head, and one create when the open segment is full; a conflict costs a read more.
    A stale writer cannot append: its head is not the current one. After a lost answer the writer looks for its own
    batch, which differs from all others.
    """

    snapshot_share = 12

    def __init__(self, storage: Storage, prefix: str = "", *, segment_bytes: int | None = None) -> None:
        self.segment_bytes = segment_bytes or (SEGMENT_BYTES if storage.is_remote else NEAR_SEGMENT_BYTES)
        if storage.is_remote:
            # A newcomer reads each segment since the snapshot by itself, one after the other.
            self.snapshot_share = 4
        self.grown = 0
        self._storage = storage
        self._prefix = prefix
        self._head: tuple[Head, str] | None = None
        self._read_at = 0.0
        self._life = ""
        self._position: tuple[int, int] | None = None
        self._snapshot: tuple[str, int, int] | None = None
        self._closed = ClosedSegments(storage, prefix)

    @property
    def position(self) -> tuple[int, int]:
        return self._position or (0, 0)

    # Appending.

    def append(self, body: bytes, follower: Follower | None, durable: bool) -> tuple[int, int]:  # noqa: ARG002
        """See the port; a confirmed write is durable."""
        framed = frame(body)
        pauses, failures = pauses_seconds(), 0
        #: The first segment that may hold the batch, by life, after writes that were not answered.
        unanswered: dict[str, int] = {}
        for _ in range(TRIES):
            head, version = self._current_head(patiently=bool(unanswered))
            if head.life in unanswered and (place := self._find_own(head, framed, follower, unanswered[head.life])):
                return place
            if follower is not None:
                head, version = self._catch_up(follower, head, version)
            following = self._following(head, framed)
            try:
                written = self._put(head, following, version)
            except CASConflictError:
                self._head = None
            except StorageError:
                # Only the answer may be lost, and the write may still be under way.
                self._head, failures = None, failures + 1
                unanswered.setdefault(head.life, head.segment)
                if failures == STORAGE_TRIES:
                    raise
            else:
                self._appended(following, written, len(framed), follower)
                return following.segment, len(following.content) - len(body)
            time.sleep(next(pauses))
        if unanswered:
            raise StorageError(f"{self._called} did not answer, and other writers were faster {TRIES} times")
        raise CASConflictError(f"{TRIES} times another writer of {self._called} was faster")

    def _following(self, head: Head, framed: bytes) -> Head:
        if head.content and len(head.content) + len(framed) > self.segment_bytes:
            return head.with_segment(f"{SEGMENTS}{head.segment:08d}-{uuid.uuid4().hex[:12]}", framed)
        return head.with_frame(framed)

    def _put(self, head: Head, following: Head, version: str) -> str:
        """Write the next head, and before it the segment that it closes; return the head's version."""
        closed = following.keys[head.segment] if following.segment > head.segment else None
        if closed:
            self._storage.create(self._key(closed), head.content)
        try:
            return self._put_head(following, version)
        except CASConflictError:
            if closed:
                # This head was refused, and no other one names it.
                with suppress(StorageError):
                    self._storage.delete(self._key(closed))
            raise

    def _appended(self, head: Head, version: str, grown: int, follower: Follower | None) -> None:
        self._take(head, version)
        if follower is not None:
            self._position = (head.segment, len(head.content))
            self.grown += grown

    def _find_own(self, head: Head, framed: bytes, follower: Follower | None, since: int) -> tuple[int, int] | None:
        """Return where the batch lies whose write was not answered, in segment ``since`` or later, None when nowhere.

        A follower is fed all that lies before it, as if it had been appended just now.
        """
        if since < self._oldest(head) or (follower is not None and not self._is_near(head)):
            raise StorageError(f"{self._called} moved on so far that an unanswered write cannot be found")
        segment, offset = self.position if follower is not None else (since, 0)
        for number in range(segment, head.segment + 1):
            for start, body in self._bodies(head, number, offset):
                if body == framed[HEADER_BYTES:]:
                    if follower is not None:
                        self._passed(number, start, body)
                    return number, start
                if follower is not None:
                    follower.feed(number, start, body)
                    self._passed(number, start, body)
            offset = 0
        return None

    # The head.

    def _current_head(self, patiently: bool = False) -> tuple[Head, str]:
        old = self._storage.is_remote and time.monotonic() - self._read_at > HEAD_SECONDS
        if self._head is None or old:
            return self._read_head(STORAGE_TRIES if patiently else 1)
        return self._head

    def _read_head(self, tries: int = 1) -> tuple[Head, str]:
        """Read the head; a queue that has none yet begins with an empty one."""
        stored = None
        for left in reversed(range(tries)):
            try:
                stored = self._storage.read(self._key("head"))
                break
            except StorageError:
                if not left:
                    raise
                time.sleep(LONGEST_PAUSE_SECONDS)
        if stored:
            return self._take(Head.load(stored.content), stored.version)
        return self._take(Head(life=uuid.uuid4().hex[:12]), "")

    def _take(self, head: Head, version: str) -> tuple[Head, str]:
        self._head, self._read_at = (head, version), time.monotonic()
        self._closed.keys.update(head.keys)
        if head.snapshot != self._snapshot:
            self._snapshot, self.grown = head.snapshot, 0
        return head, version

    def _put_head(self, head: Head, version: str) -> str:
        if version:
            return self._storage.replace(self._key("head"), head.dump(), version)
        return self._storage.create(self._key("head"), head.dump())

    # Following.

    def follow(self, follower: Follower) -> None:
        self._catch_up(follower, *self._read_head())

    def _catch_up(self, follower: Follower, head: Head, version: str) -> tuple[Head, str]:
        """Feed all up to the head, or to a newer one where its segments were deleted; return the head used."""
        for left in reversed(range(BEHIND_TRIES)):
            try:
                self._feed(follower, head)
                break
            except BehindError:
                if not left:
                    raise
                self._position = None
                head, version = self._read_head()
        return head, version

    def _feed(self, follower: Follower, head: Head) -> None:
        if not self._is_near(head):
            self._begin(follower, head)
        segment, offset = self.position
        for number in range(segment, head.segment + 1):
            for start, body in self._bodies(head, number, offset):
                follower.feed(number, start, body)
                self._passed(number, start, body)
            offset = 0
            if number < head.segment:
                self._position = (number + 1, 0)

    def _passed(self, number: int, start: int, body: bytes) -> None:
        self._position = (number, start + len(body))
        self.grown += HEADER_BYTES + len(body)

    def _bodies(self, head: Head, number: int, offset: int) -> list[tuple[int, bytes]]:
        content = head.content if number == head.segment else self._closed.content(number)
        try:
            return list(frames(content, offset, self._name(number)))
        except StorageError:
            # A snapshot of a process that has read on may lie behind the damage.
            self._position = None
            raise

    def _is_near(self, head: Head) -> bool:
        """Whether every segment from the position on can be read."""
        if self._position is None or self._life != head.life:
            return False
        return self._oldest(head) <= self._position[0] <= head.segment

    def _oldest(self, head: Head) -> int:
        return min(head.keys, default=head.segment)

    def _begin(self, follower: Follower, head: Head) -> None:
        """Start at the head's snapshot, or at the first segment."""
        kept: dict[int, str] = {}
        place, snapshot = (1, 0), None
        if head.snapshot is not None:
            key, segment, offset = head.snapshot
            kept, snapshot = self._closed.read_snapshot(key)
            place = (segment, offset)
        self._closed.begin(head, kept)
        follower.reset(snapshot)
        self._life, self._position, self.grown = head.life, place, 0

    def read(self, segment: int, offset: int, length: int, checksum: int) -> bytes:
        head = self._head[0] if self._head else self._read_head()[0]
        content = head.content if segment == head.segment else self._closed.content(segment)
        part = content[offset : offset + length]
        if len(part) != length:
            raise StorageError(f"{self._name(segment)} ends before byte {offset + length}")
        return verified(part, checksum, self._name(segment), offset)

    # Snapshots.

    def save(self, snapshot: bytes, live: set[int]) -> None:
        """Keep a snapshot, and delete unneeded segments."""
        segment, offset = self.position
        kept = {number: key for number, key in self._closed.keys.items() if number in live or number >= segment}
        key = f"{SNAPSHOTS}{segment:08d}-{uuid.uuid4().hex[:12]}"
        self._closed.write_snapshot(key, kept, snapshot)
        if self._name_snapshot(key, segment, offset):
            self._closed.drop(kept, segment)
        else:
            self._storage.delete(self._key(key))

    def _name_snapshot(self, key: str, segment: int, offset: int) -> bool:
        """Let the head name a snapshot; return False where it names a later one already, or is of another life."""
        pauses = pauses_seconds()
        for _ in range(TRIES):
            head, version = self._current_head()
            if head.life != self._life or (head.snapshot and head.snapshot[1:] >= (segment, offset)):
                self.grown = 0
                return False
            following = head.with_snapshot(key, segment, offset)
            try:
                self._take(following, self._put_head(following, version))
            except CASConflictError:
                self._head = None
                time.sleep(next(pauses))
            else:
                return True
        return False

    is_full = False

    def refusal(self) -> StorageError | None:
        """None: a bucket answers each write itself."""
        return None

    def make_room(self) -> bool:
        return False

    def forget(self) -> None:
        self._position = self._head = None

    def close(self) -> None:
        """Nothing is open between requests."""

    def destroy(self) -> None:
        """Remove everything, the head first: without it the queue is empty, should the rest fail."""
        for key in sorted(self._storage.list(self._prefix), key=lambda key: key != self._key("head")):
            self._storage.delete(key)
        self.forget()

    def destroy_if_followed(self) -> bool:
        """See the port."""
        head, version = self._read_head()
        if version and (head.life != self._life or (head.segment, len(head.content)) != self.position):
            return False
        self.destroy()
        return True

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}"

    @property
    def _called(self) -> str:
        return self._prefix or "the queue"

    def _name(self, number: int) -> str:
        return f"segment {number} of {self._called}"
