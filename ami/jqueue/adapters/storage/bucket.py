"""What a queue in a bucket is, whichever service keeps it: a journal under a name, or one blob through a client."""

from abc import abstractmethod
from typing import TYPE_CHECKING

from ami.jqueue.adapters.storage.imported_jobs import import_blob
from ami.jqueue.core.keyed import KeyedStorage
from ami.jqueue.ports.storage import ObjectStoragePort
from ami.transports.objectstore.queue.factory import open_store
from ami.transports.objectstore.queue.store import Store

if TYPE_CHECKING:
    # The client library is loaded by those who use it.
    from ami.transports.objectstore.storage.cloud import CloudObjects


class BucketStorage(KeyedStorage):
    """The journal under ``<name>/``, or the blob at ``name`` through a client of the user's own."""

    def __init__(self, name: str, blob: ObjectStoragePort | None) -> None:
        super().__init__()
        self._name = name
        self._blob = blob

    @property
    def is_keyed(self) -> bool:
        """Whether it keeps a journal, as it does without a client of the user's."""
        return self._blob is None

    async def read(self) -> tuple[bytes, str | None]:
        return await (self._blob.read() if self._blob else super().read())

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        return await (self._blob.write(content, if_match) if self._blob else super().write(content, if_match))

    @abstractmethod
    def _objects(self) -> "CloudObjects":
        """Return the bucket, without a prefix."""

    def _open(self) -> Store:
        objects = self._objects()
        store = open_store(objects, f"{self._name}/")
        import_blob(store, objects, self._name)
        return store
