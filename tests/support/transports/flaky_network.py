"""A storage behind a network that fails as the plan says, and lets others be faster at any moment."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any
from unittest.mock import patch

from ami.transports.objectstore.journal import objects as objects_module
from ami.transports.objectstore.journal.objects import ObjectJournal
from ami.transports.objectstore.storage.errors import CASConflictError, JQueueError, StorageError
from ami.transports.objectstore.storage.memory import MemoryObjects
from ami.transports.objectstore.storage.port import Stored
from tests.support.transports.recording_follower import Reader

#: Where the journal lies in the storage, and its one object that is written over.
PREFIX = "queue/"
HEAD = f"{PREFIX}head"


class Fault(Enum):
    """What becomes of one request."""

    NONE = "it is answered"
    LOST_ANSWER = "it happens or is refused, and the answer is lost"
    LOST_REQUEST = "it never arrives, and no answer comes"
    LATE = "no answer comes, and it arrives some requests later"
    CONFLICT = "it is refused because another writer was faster"
    RIVAL = "another writer acts just before it"


class FlakyNetwork:
    """A `Storage`. Each request takes the next fault of the plan; none are left: no more faults.

    ``rival`` is the action of another writer; its requests are answered.
    """

    def __init__(self, plan: Iterable[Fault] = (), *, is_remote: bool = False, latest: int = 3) -> None:
        self.objects = MemoryObjects()
        self.is_remote = is_remote
        self.rival: Callable[[], Any] = lambda: None
        self.asked: list[tuple[str, str]] = []
        self._plan: Iterator[Fault] = iter(plan)
        self._latest = latest
        self._late: list[tuple[int, Callable[[], Any]]] = []
        self._is_rival = False

    def plan(self, *faults: Fault) -> None:
        """Let the next requests fail so."""
        self._plan = iter(faults)

    def read(self, key: str) -> Stored | None:
        return self._ask("read", key, lambda: self.objects.read(key))

    def create(self, key: str, content: bytes) -> str:
        return self._ask("create", key, lambda: self.objects.create(key, content))

    def replace(self, key: str, content: bytes, version: str) -> str:
        return self._ask("replace", key, lambda: self.objects.replace(key, content, version))

    def delete(self, key: str) -> None:
        self._ask("delete", key, lambda: self.objects.delete(key))

    def list(self, prefix: str) -> list[str]:
        return self._ask("list", prefix, lambda: self.objects.list(prefix))

    def settle(self) -> None:
        """Let everything arrive that is under way, and nothing fail any more."""
        self._plan = iter(())
        for _ in range(self._latest + 1):
            self._arrive()

    def _arrive(self) -> None:
        due = [request for left, request in self._late if left <= 0]
        self._late = [(left - 1, request) for left, request in self._late if left > 0]
        for request in due:
            with suppress(JQueueError):
                request()

    def _ask(self, what: str, key: str, request: Callable[[], Any]) -> Any:
        if self._is_rival:
            return request()
        self.asked.append((what, key))
        self._arrive()
        fault = next(self._plan, Fault.NONE)
        is_write = what in ("create", "replace")
        if fault is Fault.RIVAL:
            self._is_rival = True
            try:
                self.rival()
            finally:
                self._is_rival = False
        elif fault is Fault.CONFLICT and is_write:
            raise CASConflictError("another writer was first")
        elif fault is Fault.LOST_ANSWER:
            with suppress(JQueueError):
                request()
            raise StorageError("no answer in time", TimeoutError())
        elif fault is Fault.LATE and is_write:
            self._late.append((self._latest, request))
            raise StorageError("no answer in time", TimeoutError())
        elif fault in (Fault.LOST_REQUEST, Fault.LATE):
            raise StorageError("no answer in time", TimeoutError())
        return request()


class _Hasty:
    """Stands for the module `time`: no call waits, and the clock stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


@contextmanager
def hasty() -> Iterator[_Hasty]:
    """Let journals try again without waiting."""
    with patch.object(objects_module, "time", _Hasty()) as clock:
        yield clock


def reader(network: FlakyNetwork) -> Reader:
    """Return a reader and writer of the journal there, whose segments are soon full."""
    return Reader(ObjectJournal(network, PREFIX, segment_bytes=100))


def asked(network: FlakyNetwork) -> Counter[str]:
    """Return how often each request was made since the last time."""
    counts = Counter(what for what, _ in network.asked)
    network.asked.clear()
    return counts
