"""A storage whose requests fail as the plan says: answers that are lost, requests that never arrive, conflicts."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from ami.transports.objectstore.storage.errors import CASConflictError, JQueueError, StorageError
from ami.transports.objectstore.storage.port import Storage, Stored

T = TypeVar("T")


class Fault(Enum):
    """What becomes of one request."""

    NONE = "it is answered"
    LOST_ANSWER = "it happens or is refused, and the answer is lost"
    LOST_REQUEST = "it never arrives, and no answer comes"
    CONFLICT = "it is refused because another writer was faster"


class FaultyStorage:
    """A `Storage` around another one. Each request takes the next fault of the plan; none are left: no more faults.

    A conflict befalls only create and replace; a read, a list or a delete is answered instead.
    """

    def __init__(self, storage: Storage, plan: Iterable[Fault]) -> None:
        self.storage = storage
        self._plan: Iterator[Fault] = iter(plan)
        self._lock = threading.Lock()

    @property
    def is_remote(self) -> bool:
        return self.storage.is_remote

    def read(self, key: str) -> Stored | None:
        return self._ask(lambda: self.storage.read(key))

    def create(self, key: str, content: bytes) -> str:
        return self._ask(lambda: self.storage.create(key, content), can_conflict=True)

    def replace(self, key: str, content: bytes, version: str) -> str:
        return self._ask(lambda: self.storage.replace(key, content, version), can_conflict=True)

    def delete(self, key: str) -> None:
        self._ask(lambda: self.storage.delete(key))

    def list(self, prefix: str) -> list[str]:
        return self._ask(lambda: self.storage.list(prefix))

    def _ask(self, request: Callable[[], T], *, can_conflict: bool = False) -> T:
        with self._lock:
            fault = next(self._plan, Fault.NONE)
        if fault is Fault.LOST_REQUEST:
            raise StorageError("no answer in time", TimeoutError())
        if fault is Fault.CONFLICT and can_conflict:
            raise CASConflictError("another writer was first")
        if fault is Fault.LOST_ANSWER:
            with suppress(JQueueError):
                request()
            raise StorageError("no answer in time", TimeoutError())
        return request()
