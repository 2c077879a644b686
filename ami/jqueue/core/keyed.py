"""Keeps a queue as a journal of objects: a commit costs what it appends, however much the queue holds."""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar

from ami.jqueue.core.codec import encode
from ami.jqueue.domain.errors import JQueueError, StorageError
from ami.jqueue.domain.models import Job, JobStatus, QueueState
from ami.jqueue.ports.storage import ObjectStoragePort
from ami.transports.objectstore.queue.commands import Claim, Command, Enqueue
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.store import Store


class KeyedStorage(ABC):
    """Says where a queue's journal lies. The first use opens its store, once for all queues that were given it."""

    #: Whether a commit is too short to be worth a thread.
    is_inline = False

    #: `read` and `write` of the storage itself, whatever a subclass or a test puts in their place.
    _own_calls: ClassVar[tuple[Any, Any]]

    def __init_subclass__(cls, *, is_complete: bool = False, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if is_complete:
            cls._own_calls = (cls.read, cls.write)

    def __init__(self) -> None:
        self._store: Store | None = None
        self._opening = threading.RLock()
        self._pid = os.getpid()

    @property
    def is_keyed(self) -> bool:
        """Whether it keeps a journal, and not one blob."""
        return True

    @property
    def uses_journal(self) -> bool:
        """Whether a queue commits to the journal: not where a subclass or a test replaced `read` or `write`."""
        return (
            (type(self).read, type(self).write) == self._own_calls
            and vars(self).keys().isdisjoint(("read", "write"))
            and self.is_keyed
        )

    def store(self) -> Store:
        """Return this process's store. Blocks, the first time for as long as opening takes. Raises StorageError."""
        if self._pid != os.getpid():
            # A forked child shares neither its parent's open files nor locks that another thread may have held.
            self._store, self._opening, self._pid = None, threading.RLock(), os.getpid()
        if self._store is None:
            with self._opening:
                if self._store is None:
                    self._store = self._open()
        return self._store

    @contextmanager
    def locked_store(self) -> Iterator[Store]:
        """Hold the lock of this process's store, which stays the store meanwhile. Raises StorageError."""
        while True:
            store = self.store()
            with store.lock:
                if store is self._store:
                    yield store
                    return

    def state(self, store: Store) -> QueueState:
        """Return the queue in the store, whose lock is held."""
        state = store.look()
        jobs = tuple(_job(store, entry) for entry in state.entries.values())
        return QueueState(jobs=jobs, version=state.version)

    async def read(self) -> tuple[bytes, str | None]:
        """Return (the queue in the wire format, its version), ``(b"", None)`` where nothing was ever enqueued."""
        state = await KeyedQueue(self).read_state()
        return (encode(state), str(state.version)) if state.version else (b"", None)

    async def write(self, content: bytes, if_match: str | None = None) -> str:  # noqa: ARG002 - the port's
        """Raise JQueueError: what is kept as a journal is changed by the queues alone."""
        raise JQueueError(f"{type(self).__name__} keeps a journal: give it to a queue itself, and nothing in between")

    @abstractmethod
    def _open(self) -> Store:
        """Open the store, with what an earlier format left at this place in it."""


class KeyedQueue:
    """Commits commands to a journal's store and answers in jobs. Committing blocks; from any thread."""

    def __init__(self, storage: KeyedStorage) -> None:
        self.is_inline = storage.is_inline
        self.storage = storage

    def commit(self, commands: Sequence[Command]) -> list[Any]:
        """Do the commands in one batch; the answers are those of `WholeState.commit`, as is what it raises."""
        # What was claimed must not change until its jobs are made. Other threads' commands join the batch all the same.
        with self.storage.locked_store() as store:
            arrived = datetime.now(UTC)
            return [
                _answer(store, command, answer, arrived)
                for command, answer in zip(commands, store.commit(commands), strict=True)
            ]

    async def read_state(self) -> QueueState:
        """Return the queue as all its writers have made it. Raises StorageError."""
        return self._read_state() if self.is_inline else await asyncio.to_thread(self._read_state)

    def _read_state(self) -> QueueState:
        with self.storage.locked_store() as store:
            return self.storage.state(store)


def is_journal(storage: ObjectStoragePort) -> bool:
    """Whether a queue commits to the storage's journal; through its `read` and `write` otherwise."""
    return isinstance(storage, KeyedStorage) and storage.uses_journal


def journal_of(storage: ObjectStoragePort) -> KeyedQueue | None:
    """Return the journal of a storage that keeps one, None for one blob. Raises TypeError for anything else.

    A journal whose `read` or `write` was replaced is used through them, as one blob.
    """
    if isinstance(storage, KeyedStorage) and storage.uses_journal:
        return KeyedQueue(storage)
    if isinstance(storage, ObjectStoragePort):
        return None
    raise TypeError(f"{type(storage).__name__} is not a storage: it lacks the coroutines read() and write()")


def _answer(store: Store, command: Command, answer: Any, arrived: datetime) -> Any:
    if isinstance(command, Enqueue):
        return Job(
            id=command.id,
            entrypoint=command.entrypoint,
            payload=command.payload,
            priority=command.priority,
            created_at=arrived if command.created is None else datetime.fromtimestamp(command.created, UTC),
        )
    if isinstance(command, Claim):
        return _claimed(store, answer)
    return answer


def _claimed(store: Store, entries: Sequence[Entry]) -> list[Job] | StorageError:
    """Return the jobs, or why their payloads cannot be read.

    That fails this claim alone. Its jobs stay leased: given back at once, a damaged one would fail every next claim.
    """
    try:
        return [_job(store, entry) for entry in entries]
    except StorageError as error:
        return error


def _job(store: Store, entry: Entry) -> Job:
    return Job(
        id=entry.id,
        entrypoint=entry.entrypoint,
        payload=store.payload(entry),
        status=_status(entry),
        priority=entry.priority,
        created_at=datetime.fromtimestamp(entry.created, UTC),
        heartbeat_at=None if entry.beat is None else datetime.fromtimestamp(entry.beat, UTC),
        redelivered=entry.redelivered,
    )


def _status(entry: Entry) -> JobStatus:
    if entry.buried is not None:
        return JobStatus.DEAD
    return JobStatus.QUEUED if entry.owner is None else JobStatus.IN_PROGRESS
