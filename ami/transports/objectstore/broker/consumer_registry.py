"""Which connections consume which queues: one record per connection, kept fresh while its process lives."""

import fcntl
import json
import os
import time
import weakref
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ami.transports.objectstore.storage.errors import CASConflictError
from ami.transports.objectstore.storage.port import Storage

PREFIX = "presence/"

_registries: "weakref.WeakSet[ConsumerRegistry]" = weakref.WeakSet()


@dataclass(frozen=True)
class ConsumerRecord:
    """A connection's consumers per queue. It counts as dead ``seconds`` after its last ``beat`` (epoch seconds)."""

    owner: str
    queues: dict[str, int]
    beat: float
    seconds: float


class ConsumerRegistry:
    """Every connection that consumes. In a folder, a lock per connection shows at once that its process died."""

    def __init__(self, storage: Storage, locks: Path | None) -> None:
        self._storage = storage
        self._locks = locks
        self._held: dict[str, int] = {}
        _registries.add(self)
        self._versions: dict[str, str] = {}

    def announce(self, owner: str, queues: dict[str, int], seconds: float) -> None:
        """Record that ``owner`` consumes these queues, for at least ``seconds``; without queues, remove its record."""
        if not queues:
            self.remove(owner)
            return
        if self._locks is not None and owner not in self._held:
            self._lock(self._locks, owner)
        content = json.dumps(asdict(ConsumerRecord(owner, queues, time.time(), seconds))).encode()
        key = f"{PREFIX}{owner}"
        try:
            version = self._versions.get(owner)
            new = self._storage.replace(key, content, version) if version else self._storage.create(key, content)
        except CASConflictError:
            # An answer was lost, or another process took this connection for dead: it writes its record again.
            stored = self._storage.read(key)
            new = self._storage.replace(key, content, stored.version) if stored else self._storage.create(key, content)
        self._versions[owner] = new

    def remove(self, owner: str) -> None:
        """Remove the record of a connection that was closed or whose process died."""
        if self._versions.pop(owner, None) is not None or owner not in self._held:
            self._storage.delete(f"{PREFIX}{owner}")
        if (fd := self._held.pop(owner, None)) is not None:
            os.close(fd)
        if self._locks is not None:
            (self._locks / owner).unlink(missing_ok=True)

    def all(self) -> list[ConsumerRecord]:
        """Return every record, also those of dead processes."""
        stored = (self._storage.read(key) for key in self._storage.list(PREFIX))
        return [ConsumerRecord(**json.loads(one.content)) for one in stored if one is not None]

    def is_alive(self, record: ConsumerRecord) -> bool:
        """Whether its process lives: by its lock where there are locks, else by the time of its last beat."""
        if self._locks is None or record.owner in self._held:
            return time.time() < record.beat + record.seconds
        try:
            fd = os.open(self._locks / record.owner, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(fd)

    def count(self, queue: str, records: Iterable[ConsumerRecord] | None = None) -> int:
        """Return how many living consumers a queue has."""
        found = self.all() if records is None else records
        return sum(
            record.queues.get(queue, 0) for record in found if record.queues.get(queue) and self.is_alive(record)
        )

    def _lock(self, folder: Path, owner: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / owner, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        self._held[owner] = fd

    def close_in_child(self) -> None:
        """Close the locks, which stay the parent's: a child that outlives it would make it look alive."""
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()


def _close_in_child() -> None:
    for registry in list(_registries):
        registry.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)
