"""A queue on Google Cloud Storage."""

import asyncio
from typing import TYPE_CHECKING, Any

from ami.jqueue.adapters.storage.bucket import BucketStorage
from ami.jqueue.adapters.storage.moved import refuse_moved
from ami.jqueue.domain.errors import CASConflictError, JQueueError, StorageError
from ami.jqueue.ports.storage import ObjectStoragePort

if TYPE_CHECKING:
    from ami.transports.objectstore.storage.cloud import CloudObjects

NOT_FOUND, PRECONDITION_FAILED = 404, 412


class ClientBlob:
    """One blob through the ``client`` of google-cloud-storage, which is the user's: on a thread, it is synchronous."""

    def __init__(self, client: Any, bucket_name: str, blob_name: str) -> None:
        self._client = client
        self._bucket_name = bucket_name
        self._blob_name = blob_name

    async def read(self) -> tuple[bytes, str | None]:
        try:
            content, etag = await asyncio.to_thread(self._read)
        except JQueueError:
            raise
        except Exception as error:
            raise self._failed("read", error) from error
        refuse_moved(self._url, content)
        return content, etag

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        try:
            return await asyncio.to_thread(self._write, content, if_match)
        except JQueueError:
            raise
        except Exception as error:
            raise self._failed("written", error) from error

    def _read(self) -> tuple[bytes, str | None]:
        blob = self._client.bucket(self._bucket_name).blob(self._blob_name)
        try:
            content: bytes = blob.download_as_bytes()
        except Exception as error:
            if _code(error) == NOT_FOUND:
                return b"", None
            raise
        # The client takes it from the answer that held the content.
        return content, str(blob.generation)

    def _write(self, content: bytes, if_match: str | None) -> str:
        blob = self._client.bucket(self._bucket_name).blob(self._blob_name)
        # Generation 0 means: only where there is no blob yet.
        generation = int(if_match or 0)
        try:
            blob.upload_from_string(content, content_type="application/json", if_generation_match=generation)
        except Exception as error:
            if _code(error) == PRECONDITION_FAILED:
                raise CASConflictError(f"another writer changed {self._url} first") from error
            raise
        # It is that of this upload. Loaded again, it could be that of a later one by another writer.
        return str(blob.generation)

    @property
    def _url(self) -> str:
        return f"gs://{self._bucket_name}/{self._blob_name}"

    def _failed(self, what: str, error: Exception) -> StorageError:
        return StorageError(f"{self._url} could not be {what}", error)


class GCSStorage(BucketStorage, is_complete=True):
    """The queue in the blob at ``blob_name``, or with ``journal`` below ``<blob_name>/``.

    Credentials are Google's application default ones. With a ``client`` of google-cloud-storage the blob is read and
    written through that client. google-cloud-storage is the user's own then: this package neither needs nor installs
    it.
    """

    no_version = "1"

    def __init__(self, bucket_name: str, blob_name: str, client: Any = None, *, journal: bool = False) -> None:
        super().__init__(blob_name, journal=journal, has_client=client is not None)
        self.bucket_name = bucket_name
        self.blob_name = blob_name
        self.client = client

    @property
    def _url(self) -> str:
        return f"gs://{self.bucket_name}/{self.blob_name}"

    def _client_blob(self, name: str) -> ObjectStoragePort | None:
        return None if self.client is None else ClientBlob(self.client, self.bucket_name, name)

    def _objects(self) -> "CloudObjects":
        from ami.transports.objectstore.storage.cloud import CloudObjects

        return CloudObjects.gcs(self.bucket_name, "")


def _code(error: Exception) -> int:
    """Return the HTTP status of a google.api_core exception, known by its shape; 0 for anything else."""
    code = getattr(error, "code", None)
    return int(code) if isinstance(code, int) else 0
