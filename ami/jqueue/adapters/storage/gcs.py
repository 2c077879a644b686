"""A queue on Google Cloud Storage."""

import asyncio
from typing import TYPE_CHECKING, Any

from ami.jqueue.adapters.storage.bucket import BucketStorage
from ami.jqueue.domain.errors import CASConflictError, StorageError

if TYPE_CHECKING:
    from ami.transports.objectstore.storage.cloud import CloudObjects

NOT_FOUND, PRECONDITION_FAILED = 404, 412
#: A blob that changes between its metadata and its content is read again, so often.
READS = 5


class ClientBlob:
    """One blob through a ``client`` of google-cloud-storage, which is the user's: this package does not install it.

    The client is synchronous, so every call runs on a thread.
    """

    def __init__(self, client: Any, bucket_name: str, blob_name: str) -> None:
        self._client = client
        self._bucket_name = bucket_name
        self._blob_name = blob_name

    async def read(self) -> tuple[bytes, str | None]:
        try:
            return await asyncio.to_thread(self._read)
        except Exception as error:
            raise self._failed("read", error) from error

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        try:
            return await asyncio.to_thread(self._write, content, int(if_match or 0))
        except Exception as error:
            if _code(error) == PRECONDITION_FAILED:
                raise CASConflictError(f"another writer changed {self._name} first") from error
            raise self._failed("written", error) from error

    def _read(self) -> tuple[bytes, str | None]:
        bucket = self._client.bucket(self._bucket_name)
        for left in reversed(range(READS)):
            blob = bucket.get_blob(self._blob_name)
            if blob is None:
                return b"", None
            try:
                return blob.download_as_bytes(if_generation_match=blob.generation), str(blob.generation)
            except Exception as error:
                if _code(error) not in (NOT_FOUND, PRECONDITION_FAILED) or not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _write(self, content: bytes, generation: int) -> str:
        blob = self._client.bucket(self._bucket_name).blob(self._blob_name)
        # Generation 0 means: only where there is no blob yet.
        blob.upload_from_string(content, content_type="application/json", if_generation_match=generation)
        return str(blob.generation)

    @property
    def _name(self) -> str:
        return f"gs://{self._bucket_name}/{self._blob_name}"

    def _failed(self, what: str, error: Exception) -> StorageError:
        return StorageError(f"{self._name} could not be {what}: {error}", error)


def _code(error: Exception) -> int:
    """Return the HTTP status of a google.api_core exception, known by its shape; 0 for anything else."""
    code = getattr(error, "code", None)
    return int(code) if isinstance(code, int) else 0


class GCSStorage(BucketStorage):
    """The queue under ``<blob_name>/`` in a bucket; credentials are Google's application default ones.

    A blob in the wire format at ``blob_name`` itself is imported at the first use.

    With a ``client`` of google-cloud-storage the queue is one blob at ``blob_name`` instead, in the wire format,
    through that client. google-cloud-storage is the user's own then: this package neither needs nor installs it.
    """

    def __init__(self, bucket_name: str, blob_name: str, client: Any = None) -> None:
        super().__init__(blob_name, None if client is None else ClientBlob(client, bucket_name, blob_name))
        self._bucket_name = bucket_name

    def _objects(self) -> "CloudObjects":
        from ami.transports.objectstore.storage.cloud import CloudObjects

        return CloudObjects.gcs(self._bucket_name, "")
