"""A journal that records what is appended to it, and that a test can stop, break or look into."""

from collections.abc import Callable
from typing import Any

from ami.transports.objectstore.journal.port import Follower, Journal
from ami.transports.objectstore.queue.batch import decode


class Batch:
    """One batch that was appended."""

    def __init__(self, body: bytes, follower: Follower | None, durable: bool) -> None:
        self.size = len(body)
        self.lines = decode(body)[1]
        self.is_blind = follower is None
        self.durable = durable


class WatchedJournal:
    """A journal around another one. ``before`` and ``after`` are called with each batch, and may raise."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.batches: list[Batch] = []
        self.fed = 0
        self.before: Callable[[Batch], Any] = lambda batch: None
        self.after: Callable[[Batch], Any] = lambda batch: None
        self.feeding: Callable[[], Any] = lambda: None

    def append(self, body: bytes, follower: Follower | None, durable: bool) -> tuple[int, int]:
        batch = Batch(body, follower, durable)
        self.before(batch)
        place = self.journal.append(body, follower and self._following(follower), durable)
        self.batches.append(batch)
        self.after(batch)
        return place

    def follow(self, follower: Follower) -> None:
        self.journal.follow(self._following(follower))

    def _following(self, follower: Follower) -> "_Counted":
        return _Counted(self, follower)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.journal, name)


class _Counted:
    """A follower around another one, which counts what it is fed."""

    def __init__(self, watched: WatchedJournal, follower: Follower) -> None:
        self._watched = watched
        self._follower = follower

    def reset(self, snapshot: bytes | None) -> None:
        self._follower.reset(snapshot)

    def feed(self, segment: int, offset: int, body: bytes) -> None:
        self._watched.fed += 1
        self._follower.feed(segment, offset, body)
        self._watched.feeding()
