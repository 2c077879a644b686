"""What a queue in a bucket is, whichever service keeps it: one blob at a name, or a journal below it."""

import asyncio
from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from ami.jqueue.adapters.storage.imported_jobs import import_blob
from ami.jqueue.adapters.storage.moved import moved_to
from ami.jqueue.adapters.storage.object_blob import ObjectBlob
from ami.jqueue.core.codec import decode
from ami.jqueue.core.keyed import KeyedStorage
from ami.jqueue.domain.errors import JQueueError, StorageError
from ami.jqueue.ports.storage import ObjectStoragePort
from ami.transports.objectstore.queue.factory import open_store
from ami.transports.objectstore.queue.store import Store
from ami.transports.objectstore.storage.verification import CONTENT, MARKER, trial

if TYPE_CHECKING:
    # The client library is loaded by those who use it.
    from ami.transports.objectstore.storage.cloud import CloudObjects


class BucketStorage(KeyedStorage):
    """The blob at ``name``, or with ``journal`` the journal below ``<name>/``."""

    #: What the user's client takes for a version that no blob has.
    no_version: ClassVar[str]

    def __init__(self, name: str, *, journal: bool, has_client: bool) -> None:
        if journal and has_client:
            raise ValueError("a journal uses no client of your own: leave 'journal' or the client out")
        super().__init__()
        self.journal = journal
        self._name = name
        #: The object beside the queue on which conditional writes are tried.
        self._marker = f"{name}.{MARKER}"
        self._is_verified = False
        self._blob: ObjectStoragePort | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether it keeps a journal."""
        return self.journal

    async def read(self) -> tuple[bytes, str | None]:
        """Return (the queue in the wire format, etag), ``(b"", None)`` where nothing was ever enqueued."""
        return await (super().read() if self.journal else self._port().read())

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        """Write the blob as `ObjectStoragePort` says; the first write creates only. A journal raises JQueueError."""
        if self.journal:
            return await super().write(content, if_match)
        blob = self._port()
        if not self._is_verified:
            await self._verify()
            self._is_verified = True
        return await blob.write(content, if_match)

    def import_blob(self) -> int | None:
        """Import the blob into the journal below it; return the number of jobs, None where an earlier call did.

        From then on the blob raises StorageError. Its content stays at ``<name>.imported-<version>``. Blocks. Raises
        ValueError where there is no blob, StorageError where it is not a queue.
        """
        objects = self._objects()
        stored = objects.read(self._name)
        if stored is None:
            raise ValueError(f"there is no object '{self._name}'")
        if moved_to(stored.content) is not None:
            return None
        self._verify_objects(objects)
        return import_blob(open_store(objects, f"{self._name}/"), objects, self._name)

    def _port(self) -> ObjectStoragePort:
        if self._blob is None:
            self._blob = self._client_blob(self._name) or ObjectBlob(self._objects(), self._name)
        return self._blob

    async def _verify(self) -> None:
        """Try conditional writes before the first one. Raises UnfitStorageError, StorageError."""
        blob, error = self._client_blob(self._marker), None
        if blob is None:
            return await asyncio.to_thread(self._verify_objects, self._objects())
        versions, steps = {"create": None, "replace": self.no_version}, trial(self._url)
        try:
            with suppress(StopIteration):
                while step := steps.send(error):
                    error = await self._failure(blob, versions[step])
        except StorageError as failure:
            why = f"conditional writes are tried on '{self._marker}' first: {failure.cause}"
            raise StorageError(f"{self._url} could not be written: {why}", failure.cause) from failure

    async def _failure(self, marker: ObjectStoragePort, version: str | None) -> JQueueError | None:
        try:
            await marker.write(CONTENT, version)
        except JQueueError as error:
            return error
        return None

    @property
    @abstractmethod
    def _url(self) -> str:
        """Where the queue is."""

    @abstractmethod
    def _client_blob(self, name: str) -> ObjectStoragePort | None:
        """Return the blob at ``name`` through the user's own client, None without one."""

    @abstractmethod
    def _objects(self) -> "CloudObjects":
        """Return the bucket, without a prefix."""

    def _open(self) -> Store:
        objects = self._objects()
        stored = objects.read(self._name)
        if stored is not None and moved_to(stored.content) is None and decode(stored.content).jobs:
            raise StorageError(
                f"'{self._name}' is a queue in one blob: leave 'journal' out, or import it with "
                f"python -m ami.jqueue import"
            )
        self._verify_objects(objects)
        return open_store(objects, f"{self._name}/")

    def _verify_objects(self, objects: "CloudObjects") -> None:
        # A user's test may keep them in memory.
        if objects.is_remote:
            objects.verify(self._marker)
