"""A queue in this process's memory, for tests and experiments."""

from ami.jqueue.adapters.storage.imported_jobs import import_jobs
from ami.jqueue.core.codec import decode
from ami.jqueue.core.keyed import KeyedStorage
from ami.jqueue.domain.errors import CASConflictError
from ami.transports.objectstore.queue.factory import open_store
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.memory import MemoryObjects


class InMemoryStorage(KeyedStorage):
    """Shared by all queues that are given the same object, from any thread.

    ``initial_content`` is a queue in the wire format. `read` and `write` are there for storages of your own that wrap
    this one; once a queue was given the object itself, its content changes only through queues.
    """

    is_inline = True

    def __init__(self, initial_content: bytes = b"") -> None:
        super().__init__()
        self._content = initial_content
        self._writes = 0
        self._objects: MemoryObjects | None = None

    async def read(self) -> tuple[bytes, str | None]:
        """Return (the queue in the wire format, etag)."""
        if self._objects is not None:
            return await super().read()
        return self._content, str(self._writes) if self._content else None

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        """Write as `ObjectStoragePort` says; the first write is create-only."""
        if self._objects is not None:
            return await super().write(content, if_match)
        if if_match != (await self.read())[1]:
            raise CASConflictError("another writer was first")
        self._content = content
        self._writes += 1
        return str(self._writes)

    def _open(self) -> Store:
        if self._objects is not None:
            # A forked child goes on with what it has of its parent's memory.
            return open_store(self._objects)
        objects = MemoryObjects()
        store = open_store(objects)
        import_jobs(store, decode(self._content))
        self._objects = objects
        return store
