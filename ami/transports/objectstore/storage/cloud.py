"""Objects in a bucket on S3, Google Cloud Storage or Azure."""

import os
from urllib.parse import urlsplit

from ami.transports.objectstore.storage.bucket import NO_VERSION, Bucket, Place, can_ask
from ami.transports.objectstore.storage.fork_safe import SubprocessStorage
from ami.transports.objectstore.storage.keys import quoted
from ami.transports.objectstore.storage.port import Storage, Stored
from ami.transports.objectstore.storage.verification import CONTENT, MARKER, once, verify_conditions

#: One request, from the first byte sent to the last one received.
TIMEOUT_SECONDS = 20.0


class CloudObjects:
    """A `Storage` under ``prefix`` of a bucket; make one with `s3`, `gcs` or `azure`.

    Credentials that are not given come from the environment, as the service's own tools name them, or from the
    machine's identity. Reads are tried again a few times; a write is sent once, and one that was not answered may
    have happened. A version is Google's generation, else the ETag. Azure never sends one twice; S3's is the content's
    hash, so that there two versions with the same content are one.

    S3 must be let list the bucket, or it answers a read of a missing object with 403.
    """

    is_remote = True

    def __init__(self, place: Place) -> None:
        self.place = place
        self._bucket = Bucket(place)
        self._subprocess = SubprocessStorage(place)

    @classmethod
    def s3(
        cls,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        **credentials: str | bool,
    ) -> "CloudObjects":
        """Return objects on S3, or at an ``endpoint`` that speaks its protocol and compares ETags on a put.

        ``credentials`` are obstore's settings of S3: ``access_key_id``, ``secret_access_key``, ``session_token`` ...
        Raises ValueError for an unknown setting.
        """
        endpoint = endpoint or _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        # By itself the library deletes in bulk, which not every service does that calls itself S3.
        config = {"disable_bulk_delete": True, **credentials}
        if region:
            config["region"] = region
        return cls(_place("s3", bucket, prefix, ("endpoint", endpoint), timeout_seconds, config))

    @classmethod
    def gcs(
        cls,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        **credentials: str | bool,
    ) -> "CloudObjects":
        """Return objects on Google Cloud Storage.

        ``credentials`` are obstore's settings of it: ``service_account``, ``service_account_key`` ... Raises
        ValueError for an unknown setting.
        """
        endpoint = endpoint or _environment("GOOGLE_BASE_URL")
        return cls(_place("gs", bucket, prefix, ("base_url", endpoint), timeout_seconds, credentials))

    @classmethod
    def azure(
        cls,
        container: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        **credentials: str | bool,
    ) -> "CloudObjects":
        """Return objects on Azure.

        ``credentials`` are obstore's settings of it: ``account_name``, ``account_key``, ``sas_key`` ... Raises
        ValueError for an unknown setting.
        """
        endpoint = endpoint or _environment("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
        return cls(_place("az", container, prefix, ("endpoint", endpoint), timeout_seconds, credentials))

    def verify(self, marker: str = MARKER) -> None:
        """Try both conditional writes on the object ``marker``, which stays; once per process and place.

        Raises `UnfitStorageError` where the service does not keep them.
        """
        version = NO_VERSION[self.place.service]
        writes = {
            "create": lambda: self.create(marker, CONTENT),
            "replace": lambda: self.replace(marker, CONTENT, version),
        }
        once((self.place, marker), lambda: verify_conditions(writes, self.place))

    def read(self, key: str) -> Stored | None:
        return self._storage.read(key)

    def create(self, key: str, content: bytes) -> str:
        return self._storage.create(key, content)

    def replace(self, key: str, content: bytes, version: str) -> str:
        return self._storage.replace(key, content, version)

    def delete(self, key: str) -> None:
        self._storage.delete(key)

    def list(self, prefix: str) -> list[str]:
        return self._storage.list(prefix)

    def __repr__(self) -> str:
        return f"CloudObjects({self.place})"

    @property
    def _storage(self) -> Storage:
        return self._bucket if can_ask() else self._subprocess


def _environment(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _place(
    service: str,
    bucket: str,
    prefix: str,
    endpoint: tuple[str, str | None],
    timeout_seconds: float,
    config: dict[str, str | bool],
) -> Place:
    if not bucket:
        raise ValueError("a bucket needs a name")
    if timeout_seconds <= 0:
        raise ValueError(f"timeout_seconds is {timeout_seconds:g}; it must be above 0")
    name, url = endpoint
    if url:
        # The library ends the process's thread over an invalid URL.
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the {name} '{parts.scheme}://{parts.hostname or ''}' is not an http or https URL")
        config = {**config, name: url}
    prefix = prefix.strip("/")
    spelled = quoted(prefix) if prefix else ""
    return Place(service, bucket, spelled, url, timeout_seconds, tuple(sorted(config.items())))
