"""A queue in this process's memory, for tests and experiments."""

from ami.jqueue.adapters.storage.imported_jobs import import_jobs
from ami.jqueue.core.codec import decode, encode
from ami.jqueue.core.keyed import KeyedStorage
from ami.jqueue.domain.errors import CASConflictError
from ami.jqueue.domain.models import QueueState
from ami.transports.objectstore.queue.factory import open_store
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.memory import MemoryObjects


class InMemoryStorage(KeyedStorage, is_complete=True):
    """Shared by all queues that are given the same object, from any thread.

    It is one blob where it was given content, by ``initial_content`` in the wire format or by `write`. Empty, it is
    whatever its first user needs: a journal to a queue, a blob to a storage that wraps it. A journal reads as a blob
    and may be written as one, which it is from then on.
    """

    is_inline = True

    def __init__(self, initial_content: bytes = b"") -> None:
        super().__init__()
        self.initial_content = initial_content
        self._content = initial_content
        #: The etag of the content; a journal adds its batches to it.
        self._writes = 0
        self._objects: MemoryObjects | None = None
        #: The state's version less that of the journal, and how many batches the journal began with.
        self._offset = self._batches = 0

    @property
    def is_keyed(self) -> bool:
        """Whether it keeps a journal: a queue found it empty."""
        return self._objects is not None or not self._content

    async def read(self) -> tuple[bytes, str | None]:
        """Return (the queue in the wire format, etag), ``(b"", None)`` where it is empty."""
        with self._opening:
            if self._objects is None:
                return self._content, self._etag()
            with self.locked_store() as store:
                return self._read(store)

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        """Write as `ObjectStoragePort` says; the first write creates only. Raises CASConflictError."""
        with self._opening:
            if self._objects is None:
                return self._swap(content, if_match, self._etag())
            with self.locked_store() as store:
                return self._swap(content, if_match, self._read(store)[1])

    def state(self, store: Store) -> QueueState:
        state = super().state(store)
        return state.model_copy(update={"version": state.version + self._offset})

    def _read(self, store: Store) -> tuple[bytes, str | None]:
        added = store.look().version - self._batches
        if not added:
            return self._content, self._etag()
        return encode(self.state(store)), str(self._writes + added)

    def _etag(self) -> str | None:
        return str(self._writes) if self._content else None

    def _swap(self, content: bytes, if_match: str | None, etag: str | None) -> str:
        if if_match != etag:
            raise CASConflictError(f"the etag is {etag}, not {if_match}: another writer was first")
        # Never one that it had before, also after it was emptied.
        self._content, self._writes = content, max(self._writes, int(etag or 0)) + 1
        # A queue that waits for the lock of the journal then opens another one, with this content in it.
        self._store = self._objects = None
        return str(self._writes)

    def _open(self) -> Store:
        if self._objects is not None:
            # A forked child goes on with what it has of its parent's memory.
            return open_store(self._objects)
        state, objects = decode(self._content), MemoryObjects()
        store = open_store(objects)
        import_jobs(store, state)
        self._batches = store.look().version
        self._offset = state.version - self._batches
        self._objects = objects
        return store
