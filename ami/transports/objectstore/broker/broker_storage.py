"""One broker as a process has it open: declarations, consumers, and a store and a notifier for each queue."""

import logging
import os
import shutil
import threading
from collections import deque
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, finalize

from ami.transports.objectstore.broker.address import Address
from ami.transports.objectstore.broker.consumer_registry import ConsumerRegistry
from ami.transports.objectstore.broker.declaration_store import DeclarationStore
from ami.transports.objectstore.broker.declarations import Declarations, QueueRecord
from ami.transports.objectstore.broker.expiry_marks import ExpiryMarks
from ami.transports.objectstore.broker.failure_backoff import FailureBackoff
from ami.transports.objectstore.broker.names import file_name, key_name
from ami.transports.objectstore.broker.notify import Notifier, make_private_folder
from ami.transports.objectstore.broker.refused_letters import RefusedLetters
from ami.transports.objectstore.broker.wheel import Wheel
from ami.transports.objectstore.queue.commands import Configure
from ami.transports.objectstore.queue.factory import open_folder, open_store
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.keys import NAME_BYTES as KEY_NAME_BYTES
from ami.transports.objectstore.storage.port import Storage
from ami.transports.objectstore.storage.reserve import Reserve
from ami.transports.objectstore.storage.verification import verify_folder

if TYPE_CHECKING:
    from ami.transports.objectstore.broker.timekeeper import Timekeeper
    from ami.transports.objectstore.storage.cloud import CloudObjects

log = logging.getLogger(__name__)

#: The memory of this process, by name; it outlives the connections to it.
_memories: dict[str, Storage] = {}
#: Every broker in use, and the last few that were: what they have read need not be read again.
_opened: "WeakValueDictionary[tuple[int, str], BrokerStorage]" = WeakValueDictionary()
_recent: "deque[BrokerStorage]" = deque(maxlen=4)
_opening = threading.Lock()


class BrokerStorage:
    """A broker's storage, opened once per process."""

    def __init__(self, address: Address, storage: Storage, reserve: Reserve | None = None) -> None:
        self.address = address
        self.storage = storage
        #: The space of a folder that is given up on a full disk.
        self.reserve = reserve
        self.backoff = FailureBackoff()
        self.declarations = DeclarationStore(storage)
        self.consumers = _consumer_registry(address, storage, reserve)
        self._stores: dict[str, Store] = {}
        self._notifiers: dict[str, Notifier] = {}
        self._logged: set[tuple[str, str]] = set()
        self._configured: dict[str, Configure] = {}
        #: By queue, the buried message that was tried last to be moved to its dead letters.
        self.last_letters: dict[str, str] = {}
        self.refused_letters = RefusedLetters()
        self._lock = threading.Lock()
        folder = address.folder if address.scheme == "file" else None
        #: No queue's file has this name: a percent sign stands before two digits there.
        self.wheel = Wheel(storage, folder, address.notify_folder / "%timekeeper", reserve)
        self.expiry_marks = ExpiryMarks(self.wheel, is_remote=storage.is_remote)
        if address.scheme == "file":
            address.notify_folder.mkdir(parents=True, exist_ok=True)
            if reserve is not None:
                reserve.restore()
        else:
            make_private_folder(address.notify_folder)
        if address.is_one_process:
            finalize(self, _remove, address.notify_folder, os.getpid())

    @property
    def is_local(self) -> bool:
        """Whether all its users are on this machine."""
        return not self.storage.is_remote

    @cached_property
    def timekeeper(self) -> "Timekeeper":
        """What fires delayed and expired messages in the background."""
        from ami.transports.objectstore.broker.timekeeper import Timekeeper

        return Timekeeper(self)

    def store(self, queue: str) -> Store:
        with self._lock:
            store = self._stores.get(queue)
            if store is None:
                store = self._stores[queue] = self._open(queue)
            return store

    def _open(self, queue: str) -> Store:
        if self.address.scheme != "file":
            return open_store(self.storage, f"queues/{key_name(queue, KEY_NAME_BYTES)}/")
        record = self.declarations.current().queues.get(queue)
        is_durable = record is None or not record.is_transient
        folder = self.address.folder / "queues" / file_name(queue)
        return open_folder(folder, durable=is_durable, reserve=self.reserve)

    def log_once(self, message: str, **fields: Any) -> None:
        """Log a warning, unless this process logged it with the same fields before."""
        key = (message, repr(fields))
        if key not in self._logged:
            self._logged.add(key)
            log.warning(message, extra=fields)

    def configure(self, queue: str, record: QueueRecord, *, is_new: bool) -> None:
        """Write the queue's limits and dead lettering to its journal, if they are not the default.

        Each process does so once also for a queue that is not new: the process that declared it first may have been
        killed before it wrote them.
        """
        configure = Configure(record.delivery_limit, record.dead_letters is not None, *record.limit)
        if configure != Configure() and (is_new or self._configured.get(queue) != configure):
            self.store(queue).commit([configure], durable=False)
            self._configured[queue] = configure

    def notifier(self, queue: str) -> Notifier:
        notifier = self._notifiers.get(queue)
        if notifier is None:
            notifier = self._notifiers[queue] = Notifier(self.notifier_path(queue))
        return notifier

    def notifier_path(self, queue: str) -> Path:
        """The file that is written to when the queue got work."""
        return self.address.notify_folder / file_name(queue)

    def delete(self, queue: str) -> None:
        """Delete a queue with its messages.

        They are removed first. Killed then, this process leaves an empty queue, which can be declared and deleted; the
        other way round, the next queue of that name would have them.
        """
        record = self.declarations.current().queues.get(queue)
        self._configured.pop(queue, None)
        if record is not None and not record.is_transient:
            self.store(queue).destroy()
        self.declarations.change(partial(Declarations.without_queue, name=queue))
        self.destroy(queue)

    def destroy(self, queue: str) -> None:
        """Remove what a deleted queue held."""
        self.store(queue).destroy()
        # Its consumers find that it is gone.
        self.notifier(queue).notify()
        self._close(queue)
        self.notifier_path(queue).unlink(missing_ok=True)

    def use_room(self) -> None:
        """On a full disk: shorten the journals, and make the reserve again where there is room."""
        if self.reserve is None or self.reserve.restore():
            return
        for store in list(self._stores.values()):
            store.shorten()

    def close_deleted_queues(self) -> None:
        """Close the queues that others deleted: each remote control command makes one for its replies."""
        known = self.declarations.current().queues
        for queue in [name for name in list(self._stores) if name not in known]:
            self._close(queue)

    def _close(self, queue: str) -> None:
        with self._lock:
            store, notifier = self._stores.pop(queue, None), self._notifiers.pop(queue, None)
        if store is not None:
            store.close()
        if notifier is not None:
            notifier.close()


def _remove(folder: Path, pid: int) -> None:
    """Remove a folder, unless in a forked child, which drops its copy of the same object."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def open_broker_storage(address: Address) -> BrokerStorage:
    """Return this process's storage at an address; a forked child opens its own.

    Raises:
        UnfitStorageError: the storage lacks what the promises of a broker rest on.
        StorageError: the storage does not answer, or may not be written to.
    """
    key = (os.getpid(), str(address))
    with _opening:
        broker = _opened.get(key)
        if broker is None:
            broker = _opened[key] = _opened_at(address)
        if broker not in _recent:
            _recent.append(broker)
        return broker


def _forget_opened() -> None:
    """In a forked child: its parent's locks may be held by threads that are not here."""
    global _opening
    _opening = threading.Lock()
    _opened.clear()
    _recent.clear()


os.register_at_fork(after_in_child=_forget_opened)


def _opened_at(address: Address) -> BrokerStorage:
    reserve = Reserve(address.folder) if address.scheme == "file" else None
    return BrokerStorage(address, _storage(address, reserve), reserve)


def _consumer_registry(address: Address, storage: Storage, reserve: Reserve | None) -> ConsumerRegistry:
    if address.scheme != "file":
        return ConsumerRegistry(storage, None)
    from ami.transports.objectstore.storage.folder import FolderObjects

    # The records need not survive a power failure.
    return ConsumerRegistry(
        FolderObjects(address.folder / "alive", durable=False, reserve=reserve), address.folder / "locks"
    )


def _storage(address: Address, reserve: Reserve | None) -> Storage:
    if address.scheme == "memory":
        from ami.transports.objectstore.storage.memory import MemoryObjects

        return _memories.setdefault(str(address), MemoryObjects())
    if address.scheme == "file":
        from ami.transports.objectstore.storage.folder import FolderObjects

        verify_folder(address.folder)
        return FolderObjects(address.folder / "objects", reserve=reserve)
    objects = _bucket(address)
    objects.verify()
    return objects


def _bucket(address: Address) -> "CloudObjects":
    from ami.transports.objectstore.storage.cloud import CloudObjects

    if address.scheme == "s3":
        return CloudObjects.s3(address.bucket, address.path)
    if address.scheme == "gs":
        return CloudObjects.gcs(address.bucket, address.path)
    return CloudObjects.azure(address.bucket, address.path)
