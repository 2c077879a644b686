"""The journal port: append a batch after those of all others, read what others appended, keep snapshots."""

from typing import Protocol

from ami.transports.objectstore.storage.errors import StorageError


class BehindError(StorageError):
    """The next batches of a follower were dropped; a newer snapshot, where there is one, includes them."""


class Follower(Protocol):
    """Applies the batches of a journal, in its order."""

    def reset(self, snapshot: bytes | None) -> None:
        """Start from a snapshot, or from nothing."""

    def feed(self, segment: int, offset: int, body: bytes) -> None:
        """Apply the next batch; its body begins at ``offset`` of ``segment``."""


class Journal(Protocol):
    """Batches of one queue, each appended whole or not at all. Not thread-safe: the store's lock guards it.

    Raises, all of it: `StorageError` where the storage fails or holds torn data.
    """

    def append(self, body: bytes, follower: Follower | None, durable: bool) -> tuple[int, int]:
        """Append a batch; return the segment and offset at which its body begins.

        ``follower`` is first fed all that others appended before it; with None nothing is read. ``durable`` returns
        only when the batch would survive a power failure.

        Raises `CASConflictError` when others were faster many times over; nothing was appended then. After a
        `StorageError` it may be in the journal: then it is fed like another process's batch.
        """

    def refusal(self) -> StorageError | None:
        """Return why no further message is accepted now, or None: the journal is damaged, or its disk is full."""

    def make_room(self) -> bool:
        """Give up what was reserved on a full disk for going on without new messages; return whether that helps."""

    @property
    def is_full(self) -> bool:
        """Whether the reserve was given up and is not back yet: shortening the journal is urgent."""

    def follow(self, follower: Follower) -> None:
        """Feed what was appended since the last time; the first time begins at the latest snapshot."""

    def read(self, segment: int, offset: int, length: int, checksum: int) -> bytes:
        """Return a part of a segment whose CRC-32 is ``checksum``; where it is not, StorageError names the place."""

    def save(self, snapshot: bytes, live: set[int]) -> None:
        """Keep a snapshot of what was followed so far, and drop segments before it that are not ``live``."""

    @property
    def position(self) -> tuple[int, int]:
        """The segment and offset up to which it was followed."""

    @property
    def grown(self) -> int:
        """How many bytes were followed or appended since the snapshot."""

    @property
    def snapshot_share(self) -> int:
        """How many times its own size should be appended between two snapshots."""

    @property
    def segment_bytes(self) -> int:
        """The size at which a segment ends."""

    def forget(self) -> None:
        """Begin at the latest snapshot again the next time it is followed."""

    def close(self) -> None:
        """Close open files; the next use opens them again."""

    def destroy(self) -> None:
        """Remove everything."""

    def destroy_if_followed(self) -> bool:
        """Remove everything, unless more was appended than was followed; then return False.

        In a remote storage, an append at the same moment is lost.
        """
