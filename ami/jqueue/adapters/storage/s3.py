"""A queue on S3, or on what speaks its protocol."""

from typing import TYPE_CHECKING, Any

from ami.jqueue.adapters.storage.bucket import BucketStorage
from ami.jqueue.domain.errors import CASConflictError, StorageError

if TYPE_CHECKING:
    from ami.transports.objectstore.storage.cloud import CloudObjects

MISSING = ("NoSuchKey", "404")
CONFLICTS = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")


class SessionBlob:
    """One blob through the ``session`` of aioboto3, which is the user's: this package neither needs nor installs it."""

    def __init__(self, session: Any, bucket: str, key: str, connection: dict[str, str]) -> None:
        self._session = session
        self._place = {"Bucket": bucket, "Key": key}
        self._connection = connection

    async def read(self) -> tuple[bytes, str | None]:
        try:
            async with self._session.client("s3", **self._connection) as client:
                response = await client.get_object(**self._place)
                async with response["Body"] as body:
                    return await body.read(), response["ETag"]
        except Exception as error:
            if _code(error) in MISSING:
                return b"", None
            raise self._failed("read", error) from error

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        # Two first writers that both only put would lose what one of them enqueued.
        condition = {"IfNoneMatch": "*"} if if_match is None else {"IfMatch": if_match}
        try:
            async with self._session.client("s3", **self._connection) as client:
                etag: str = (await client.put_object(**self._place, Body=content, **condition))["ETag"]
                return etag
        except Exception as error:
            # A replace finds nothing where the blob was deleted meanwhile.
            if _code(error) in CONFLICTS or (if_match is not None and _code(error) in MISSING):
                raise CASConflictError(f"another writer changed {self._name} first") from error
            raise self._failed("written", error) from error

    @property
    def _name(self) -> str:
        return f"s3://{self._place['Bucket']}/{self._place['Key']}"

    def _failed(self, what: str, error: Exception) -> StorageError:
        return StorageError(f"{self._name} could not be {what}: {error}", error)


def _code(error: Exception) -> str:
    """Return the error code of a botocore ClientError, known by its shape; empty for anything else."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


class S3Storage(BucketStorage):
    """The queue under ``<key>/`` in a bucket; credentials come from the environment, as every AWS tool finds them.

    ``endpoint_url`` is for MinIO, Cloudflare R2 and the like; they must know conditional writes. A blob in the wire
    format at ``key`` itself is imported at the first use.

    With a ``session`` of aioboto3 the queue is one blob at ``key`` instead, in the wire format, through that session.
    aioboto3 is the user's own then: this package neither needs nor installs it.
    """

    def __init__(
        self,
        bucket: str,
        key: str,
        session: Any = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        given = {"region_name": region_name, "endpoint_url": endpoint_url}
        connection = {name: value for name, value in given.items() if value is not None}
        super().__init__(key, None if session is None else SessionBlob(session, bucket, key, connection))
        self._bucket = bucket
        self._region_name = region_name
        self._endpoint_url = endpoint_url

    def _objects(self) -> "CloudObjects":
        from ami.transports.objectstore.storage.cloud import CloudObjects

        return CloudObjects.s3(self._bucket, "", region=self._region_name, endpoint=self._endpoint_url)
