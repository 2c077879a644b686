"""One broker as a process sees it: the layout, the presences, and a store and a bell for each queue."""

import os
import shutil
import threading
from collections import deque
from pathlib import Path
from urllib.parse import quote
from weakref import WeakValueDictionary, finalize

from ami.transports.objectstore.broker.address import Address
from ami.transports.objectstore.broker.consumer_registry import Presences
from ami.transports.objectstore.broker.declaration_store import Catalogue
from ami.transports.objectstore.broker.declarations import QueueRecord
from ami.transports.objectstore.broker.notify import Bell, private
from ami.transports.objectstore.queue.commands import Configure
from ami.transports.objectstore.queue.factory import open_folder, open_store
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.port import Storage

#: The memory of this process, by name; it outlives the connections to it.
_memories: dict[str, Storage] = {}
#: Every site that somebody uses, and the last few that somebody used: what they have read need not be read again.
_sites: "WeakValueDictionary[tuple[int, str], Site]" = WeakValueDictionary()
_recent: "deque[Site]" = deque(maxlen=4)
_opening = threading.Lock()


class Site:
    """A broker's storage, opened once per process."""

    def __init__(self, address: Address, storage: Storage) -> None:
        self.address = address
        self.storage = storage
        self.catalogue = Catalogue(storage)
        self.presences = _presences(address, storage)
        self._stores: dict[str, Store] = {}
        self._bells: dict[str, Bell] = {}
        self._said: set[str] = set()
        self._lock = threading.Lock()
        if address.scheme == "file":
            address.bells.mkdir(parents=True, exist_ok=True)
        else:
            private(address.bells)
        if address.is_one_process:
            finalize(self, _remove, address.bells, os.getpid())

    @property
    def is_local(self) -> bool:
        """Whether everybody who uses it is on this machine."""
        return not self.storage.is_remote

    def store(self, queue: str) -> Store:
        """Return the store of a queue."""
        with self._lock:
            store = self._stores.get(queue)
            if store is None:
                store = self._stores[queue] = self._open(queue)
            return store

    def _open(self, queue: str) -> Store:
        name = quote(queue, safe="")
        if self.address.scheme != "file":
            return open_store(self.storage, f"queues/{name}/")
        record = self.catalogue.current().queues.get(queue)
        is_durable = record is None or not record.is_transient
        return open_folder(self.address.folder / "queues" / name, durable=is_durable)

    def is_news(self, text: str) -> bool:
        """Whether this was not asked before: a log need not say it each second."""
        is_new = text not in self._said
        self._said.add(text)
        return is_new

    def configure(self, queue: str, record: QueueRecord) -> None:
        """Tell the queue's journal what to do with failed messages, if that is not the default."""
        if record.delivery_limit is not None or record.dead_letters is None:
            self.store(queue).commit([Configure(record.delivery_limit, record.dead_letters is not None)], durable=False)

    def bell(self, queue: str) -> Bell:
        """Return the bell of a queue."""
        bell = self._bells.get(queue)
        if bell is None:
            bell = self._bells[queue] = Bell(self.bell_path(queue))
        return bell

    def bell_path(self, queue: str) -> Path:
        """Return the file that is touched when the queue got work."""
        return self.address.bells / quote(queue, safe="")

    def destroy(self, queue: str) -> None:
        """Remove what a deleted queue held."""
        self.store(queue).destroy()
        self._close(queue)
        self.bell_path(queue).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Close what belongs to queues that others deleted: each remote control command makes one for its replies."""
        known = self.catalogue.current().queues
        for queue in [name for name in list(self._stores) if name not in known]:
            self._close(queue)

    def _close(self, queue: str) -> None:
        with self._lock:
            store, bell = self._stores.pop(queue, None), self._bells.pop(queue, None)
        if store is not None:
            store.close()
        if bell is not None:
            bell.close()


def _remove(folder: Path, pid: int) -> None:
    """Remove a folder, if it is this process that made it: a forked child lets go of the same site."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def open_site(address: Address) -> Site:
    """Return this process's site at an address; a forked child opens its own."""
    key = (os.getpid(), str(address))
    with _opening:
        site = _sites.get(key)
        if site is None:
            site = _sites[key] = Site(address, _storage(address))
        if site not in _recent:
            _recent.append(site)
        return site


def _forget_sites() -> None:
    """In a forked child: its parent's locks may be held by threads that are not here."""
    global _opening
    _opening = threading.Lock()
    _sites.clear()
    _recent.clear()


os.register_at_fork(after_in_child=_forget_sites)


def _presences(address: Address, storage: Storage) -> Presences:
    if address.scheme != "file":
        return Presences(storage, None)
    from ami.transports.objectstore.storage.folder import FolderObjects

    # Who is alive need not survive a power failure.
    return Presences(FolderObjects(address.folder / "alive", durable=False), address.folder / "locks")


def _storage(address: Address) -> Storage:
    if address.scheme == "memory":
        from ami.transports.objectstore.storage.memory import MemoryObjects

        return _memories.setdefault(str(address), MemoryObjects())
    if address.scheme == "file":
        from ami.transports.objectstore.storage.folder import FolderObjects

        return FolderObjects(address.folder / "objects")
    from ami.transports.objectstore.storage.cloud import CloudObjects

    if address.scheme == "s3":
        return CloudObjects.s3(address.bucket, address.path)
    if address.scheme == "gs":
        return CloudObjects.gcs(address.bucket, address.path)
    return CloudObjects.azure(address.bucket, address.path)
