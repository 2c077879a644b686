"""A follower that writes down what it is fed, and journals for it to follow."""

import zlib
from pathlib import Path

from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.journal.port import Journal

POWER_FAILURE = b"doubt"


class RecordingFollower:
    """The bodies since the last reset, and what that began with."""

    def __init__(self) -> None:
        self.began_with: list[bytes | None] = []
        self.bodies: list[bytes] = []
        self.places: dict[bytes, tuple[int, int]] = {}

    def reset(self, snapshot: bytes | None) -> None:
        self.began_with.append(snapshot)
        self.bodies = snapshot.split(b"|") if snapshot else []

    def feed(self, segment: int, offset: int, body: bytes) -> None:
        self.bodies.append(body)
        self.places[body] = segment, offset

    def snapshot(self) -> bytes:
        """Return what another diary can begin with."""
        return b"|".join(self.bodies)


class Reader:
    """A journal and its diary, as one process has them."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.diary = RecordingFollower()

    def append(self, *bodies: bytes) -> None:
        """Append bodies, each after all that others appended."""
        for body in bodies:
            segment, offset = self.journal.append(body, self.diary, durable=True)
            self.diary.feed(segment, offset, body)

    def all(self) -> list[bytes]:
        """Return every body in the journal."""
        self.journal.follow(self.diary)
        return self.diary.bodies

    def save(self, live: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        """Keep a snapshot of all that was followed."""
        self.journal.save(self.diary.snapshot(), set(live))

    def read(self, body: bytes) -> bytes:
        """Return a body from where it lay when it was fed."""
        segment, offset = self.diary.places[body]
        return self.journal.read(segment, offset, len(body), zlib.crc32(body))


def on_folder(folder: Path, segment_bytes: int = 100, *, durable: bool = True) -> Reader:
    """Return a reader of the journal in a folder, as another process would open it."""
    return Reader(FolderJournal(folder, power_failure=POWER_FAILURE, durable=durable, segment_bytes=segment_bytes))


def number(count: int, first: int = 0) -> list[bytes]:
    """Return so many bodies that differ."""
    return [b"body %03d" % each for each in range(first, first + count)]
