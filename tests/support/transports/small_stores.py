"""Stores on journals that are small enough for a test to reach their ends, at moments of the test's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.journal.objects import ObjectJournal
from ami.transports.objectstore.queue import opcodes as op
from ami.transports.objectstore.queue import shortener
from ami.transports.objectstore.queue import store as store_module
from ami.transports.objectstore.queue.batch import encode, encode_line
from ami.transports.objectstore.queue.commands import Claim, Enqueue
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.port import Storage

POWER_FAILURE, _ = encode(0.0, [encode_line([op.POWER_FAILURE])], [], "doubt")


class Clock:
    """Stands for the module `time` where a store asks it."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@contextmanager
def clock(now: float = 0.0) -> Iterator[Clock]:
    """Let the stores of this process go by a clock that stands still."""
    standing = Clock(now)
    with patch.object(store_module, "time", standing):
        yield standing


@contextmanager
def snapshots_every(size: int) -> Iterator[None]:
    """Let stores keep a snapshot each time so many bytes were appended, however much they hold."""
    with (
        patch.object(shortener, "SNAPSHOT_BYTES", size),
        patch.object(FolderJournal, "snapshot_share", 0),
        patch.object(ObjectJournal, "snapshot_share", 0),
    ):
        yield


def on_folder(folder: Path, segment_bytes: int = 400, *, durable: bool = False) -> Store:
    """Return a store on a folder, as another process would open it."""
    return Store(FolderJournal(folder, power_failure=POWER_FAILURE, durable=durable, segment_bytes=segment_bytes))


def on_objects(storage: Storage, segment_bytes: int = 400, prefix: str = "queue/") -> Store:
    """Return a store on a storage, as another process would open it."""
    return Store(ObjectJournal(storage, prefix, segment_bytes=segment_bytes))


def publish(store: Store, *ids: str, size: int = 0, durable: bool = True) -> list[Any]:
    """Publish messages in one batch; the payload begins with the id."""
    return store.commit([message(each, size) for each in ids], durable=durable)


def message(name: str, size: int = 0) -> Enqueue:
    """Return what publishes a message whose payload begins with its id, filled up to ``size`` bytes."""
    return Enqueue(name, content(name, size))


def content(name: str, size: int = 0) -> bytes:
    """Return the payload that `message` gives to an id."""
    return name.encode().ljust(size, b".")


def claim(store: Store, limit: int = 1, owner: str = "worker", seconds: float | None = 60.0) -> list[str]:
    """Claim; return the ids."""
    [entries] = store.commit([Claim(limit, owner, seconds)], durable=False)
    return [entry.id for entry in entries]


def held(store: Store) -> dict[str, bytes]:
    """Return every message that the queue holds, by its id, read from the storage."""
    with store.lock:
        return {entry.id: store.payload(entry) for entry in store.look().entries.values()}


def waiting(store: Store) -> list[str]:
    """Return the ids of what waits, in order."""
    with store.lock:
        entries = [entry for entry in store.look().entries.values() if entry.is_waiting]
        return [entry.id for entry in sorted(entries, key=lambda entry: (entry.priority, entry.order))]
