"""The journal port: append one batch after everybody else's, read what others appended, keep snapshots."""

from typing import Protocol

from ami.transports.objectstore.storage.errors import StorageError


class BehindError(StorageError):
    """What comes next for a follower was dropped: a newer snapshot, where there is one, holds what it told."""


class Follower(Protocol):
    """Who applies what a journal holds, in its order."""

    def reset(self, snapshot: bytes | None) -> None:
        """Start anew from a snapshot, or from nothing."""

    def feed(self, segment: int, offset: int, body: bytes) -> None:
        """Apply the next batch; its body begins at ``offset`` of ``segment``."""


class Journal(Protocol):
    """Batches of one queue, each appended whole or not at all. Not thread-safe: the store's lock guards it.

    Raises, all of it: `StorageError` where the storage fails or holds torn data.
    """

    def append(self, body: bytes, follower: Follower | None, durable: bool) -> tuple[int, int]:
        """Append a batch; return the segment and offset at which its body begins.

        ``follower`` is first fed all that others appended before it; with None the batch goes in blindly. ``durable``
        returns only when a power failure cannot take it away any more.

        Raises `CASConflictError` when others were faster many times over; nothing was appended then. After a
        `StorageError` it may be in the journal: it is fed like one of somebody else's then.
        """

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
        """How many times its own size a snapshot should have been paid for by what was appended since the last one."""

    @property
    def segment_bytes(self) -> int:
        """The size at which a segment ends."""

    def forget(self) -> None:
        """Begin at the latest snapshot again the next time it is followed."""

    def close(self) -> None:
        """Close what is open."""

    def destroy(self) -> None:
        """Remove everything."""
