"""A queue on S3, or on what speaks its protocol."""

from typing import TYPE_CHECKING, Any

from ami.jqueue.adapters.storage.bucket import BucketStorage
from ami.jqueue.adapters.storage.moved import refuse_moved
from ami.jqueue.domain.errors import CASConflictError, StorageError
from ami.jqueue.ports.storage import ObjectStoragePort

if TYPE_CHECKING:
    from ami.transports.objectstore.storage.cloud import CloudObjects

#: An ETag that no object has.
NO_VERSION = '"00000000000000000000000000000000"'
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
                content, etag = await response["Body"].read(), response["ETag"]
        except Exception as error:
            if _s3_error_code(error) in MISSING:
                return b"", None
            raise self._failed("read", error) from error
        refuse_moved(self._name, content)
        return content, etag

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        # Two first writers that both only put would lose what one of them enqueued.
        settings = {"IfNoneMatch": "*"} if if_match is None else {"IfMatch": if_match}
        settings["ContentType"] = "application/json"
        try:
            async with self._session.client("s3", **self._connection) as client:
                etag: str = (await client.put_object(**self._place, Body=content, **settings))["ETag"]
                return etag
        except Exception as error:
            # A replace finds nothing where the blob was deleted meanwhile.
            if _s3_error_code(error) in CONFLICTS or (if_match is not None and _s3_error_code(error) in MISSING):
                raise CASConflictError(f"another writer changed {self._name} first") from error
            raise self._failed("written", error) from error

    @property
    def _name(self) -> str:
        return f"s3://{self._place['Bucket']}/{self._place['Key']}"

    def _failed(self, what: str, error: Exception) -> StorageError:
        return StorageError(f"{self._name} could not be {what}: {error}", error)


def _s3_error_code(error: Exception) -> str:
    """Return the error code of a botocore ClientError, known by its shape; empty for anything else."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


class S3Storage(BucketStorage, is_complete=True):
    """The queue in the object at ``key``, or with ``journal`` below ``<key>/``.

    Credentials come from the environment, as every AWS tool finds them. ``endpoint_url`` is for MinIO, Cloudflare R2
    and the like; they must know conditional writes. With a ``session`` of aioboto3 the object is read and written
    through that session. aioboto3 is the user's own then: this package neither needs nor installs it.
    """

    no_version = NO_VERSION

    def __init__(
        self,
        bucket: str,
        key: str,
        session: Any = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        *,
        journal: bool = False,
    ) -> None:
        super().__init__(key, journal=journal, has_client=session is not None)
        self.bucket = bucket
        self.key = key
        self.session = session
        self.region_name = region_name
        self.endpoint_url = endpoint_url

    def _client_kwargs(self) -> dict[str, str]:
        given = {"region_name": self.region_name, "endpoint_url": self.endpoint_url}
        return {name: value for name, value in given.items() if value}

    @property
    def _url(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def _client_blob(self, name: str) -> ObjectStoragePort | None:
        if self.session is None:
            return None
        return SessionBlob(self.session, self.bucket, name, self._client_kwargs())

    def _objects(self) -> "CloudObjects":
        from ami.transports.objectstore.storage.cloud import CloudObjects

        return CloudObjects.s3(self.bucket, "", region=self.region_name, endpoint=self.endpoint_url)
