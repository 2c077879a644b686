"""Who consumes what: one record per connection that consumes, kept fresh while its process lives."""

import fcntl
import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ami.transports.objectstore.storage.errors import CASConflictError
from ami.transports.objectstore.storage.port import Storage

PREFIX = "presence/"


@dataclass(frozen=True)
class Record:
    """A connection's consumers per queue. It counts as gone ``seconds`` after its last ``beat`` (epoch)."""

    owner: str
    queues: dict[str, int]
    beat: float
    seconds: float


class Presences:
    """Every connection that consumes. In a folder a lock tells at once that a process died."""

    def __init__(self, storage: Storage, locks: Path | None) -> None:
        self._storage = storage
        self._locks = locks
        self._held: dict[str, int] = {}
        self._versions: dict[str, str] = {}

    def tell(self, owner: str, queues: dict[str, int], seconds: float) -> None:
        """Write that ``owner`` consumes these queues for ``seconds`` at least; without queues it is withdrawn."""
        if not queues:
            self.withdraw(owner)
            return
        if self._locks is not None and owner not in self._held:
            self._lock(self._locks, owner)
        content = json.dumps(asdict(Record(owner, queues, time.time(), seconds))).encode()
        key = f"{PREFIX}{owner}"
        try:
            version = self._versions.get(owner)
            new = self._storage.replace(key, content, version) if version else self._storage.create(key, content)
        except CASConflictError:
            # A lost answer, or somebody took this one for dead: it is alive and says so again.
            stored = self._storage.read(key)
            new = self._storage.replace(key, content, stored.version) if stored else self._storage.create(key, content)
        self._versions[owner] = new

    def withdraw(self, owner: str) -> None:
        """Remove a record: the connection was closed, or its process is gone."""
        if self._versions.pop(owner, None) is not None or owner not in self._held:
            self._storage.delete(f"{PREFIX}{owner}")
        if (fd := self._held.pop(owner, None)) is not None:
            os.close(fd)
        if self._locks is not None:
            (self._locks / owner).unlink(missing_ok=True)

    def all(self) -> list[Record]:
        """Return every record, those of the dead among them."""
        stored = (self._storage.read(key) for key in self._storage.list(PREFIX))
        return [Record(**json.loads(one.content)) for one in stored if one is not None]

    def is_alive(self, record: Record) -> bool:
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

    def consumers(self, queue: str, records: Iterable[Record] | None = None) -> int:
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
