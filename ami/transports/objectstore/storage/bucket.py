"""One bucket on S3, Google Cloud Storage or Azure, used from this process."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from ami.environment.url_login import LOGIN
from ami.transports.objectstore.storage.errors import CASConflictError, StorageError
from ami.transports.objectstore.storage.keys import folder_of, quoted, unquoted
from ami.transports.objectstore.storage.port import Stored

CONNECT_SECONDS = 5.0
#: How often a failed read is tried again; a write never is, since it would conflict with itself if it did happen.
READ_RETRIES = 2

STORES: dict[str, Callable[..., ObjectStore]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
#: The field by which each service distinguishes versions. Google compares generations; it only sends its ETags.
VERSIONS = {"s3": "e_tag", "gs": "version", "az": "e_tag"}
#: By service, a version that no object has.
NO_VERSION = {"s3": '"00000000000000000000000000000000"', "gs": "1", "az": '"0x0000000000000000"'}

#: Answers about a missing bucket. In answers about an object the key is quoted, so it cannot look like this.
NO_BUCKET = re.compile("<Code>(NoSuchBucket|ContainerNotFound)</Code>|bucket does not exist")
#: The settings that are secret, and the least length of a secret: shorter values also occur in harmless words.
SECRET_LENGTH = 8
SECRET = re.compile("key|secret|token|sas|password", re.IGNORECASE)

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Place:
    """A bucket of a service, with all that its requests need, credentials included.

    ``service`` is ``s3``, ``gs`` or ``az``; ``config`` are obstore's settings of that service.
    """

    service: str
    bucket: str
    prefix: str
    endpoint: str | None
    timeout_seconds: float
    config: tuple[tuple[str, str | bool], ...]

    def __repr__(self) -> str:
        # Without the credentials: some tracebacks show what variables hold.
        return f"{self.service}://{self.bucket}/{self.prefix}"


class NotThereError(Exception):
    """The bucket has no such object."""


_asked = False
_threads_are_here = True


def can_ask() -> bool:
    """Return whether this process can send requests to a bucket, and note that it does.

    The library works in threads, which a fork does not copy: a child whose parent has sent requests would wait
    forever, whatever the timeouts.
    """
    global _asked
    _asked = True
    return _threads_are_here


def _after_fork() -> None:
    global _threads_are_here
    _threads_are_here = not _asked


os.register_at_fork(after_in_child=_after_fork)


class Bucket:
    """A `Storage` in the bucket of a place, while `can_ask`.

    Raises:
        ValueError: a setting of the place is wrong.
    """

    is_remote = True

    def __init__(self, place: Place) -> None:
        self._place = place
        self._reads, self._writes = _stores(replace(place, prefix=""))

    def read(self, key: str) -> Stored | None:
        path = self._path(key)
        try:
            return self._ask("read", key, lambda: self._get(path))
        except NotThereError:
            return None

    def create(self, key: str, content: bytes) -> str:
        return self._put("create", key, content, "create")

    def replace(self, key: str, content: bytes, version: str) -> str:
        return self._put("replace", key, content, {VERSIONS[self._place.service]: version})

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            self._ask("delete", key, lambda: obstore.delete(self._writes, path))
        except NotThereError:
            return

    def list(self, prefix: str) -> list[str]:
        """Return the keys that begin so; see the port. An object whose name is not a quoted key is not listed."""
        folder = folder_of(prefix)
        top = self._path(folder) if folder else self._place.prefix
        found = self._ask("list", prefix, lambda: obstore.list(self._reads, top or None, chunk_size=1000).collect())
        spelled = (each["path"].removeprefix(f"{self._place.prefix}/" if self._place.prefix else "") for each in found)
        return sorted(key for name in spelled if (key := unquoted(name)) is not None and key.startswith(prefix))

    def _path(self, key: str) -> str:
        return f"{self._place.prefix}/{quoted(key)}" if self._place.prefix else quoted(key)

    def _get(self, path: str) -> Stored:
        answer = obstore.get(self._reads, path)
        return Stored(answer.bytes().to_bytes(), self._version(answer.meta))

    def _put(self, what: str, key: str, content: bytes, mode: Any) -> str:
        path = self._path(key)
        return self._ask(
            what,
            key,
            lambda: self._version(obstore.put(self._writes, path, bytes(content), mode=mode, use_multipart=False)),
        )

    def _version(self, answer: Any) -> str:
        version = answer[VERSIONS[self._place.service]]
        if not version:
            raise ValueError("the service sent no version")
        return str(version)

    def _ask(self, what: str, key: str, request: Callable[[], T]) -> T:
        try:
            return request()
        except Exception as raised:
            failure = self._failure(what, key, raised)
        # Outside of the except: the library's exception can hold credentials, and would be kept as the context.
        raise failure

    def _failure(self, what: str, key: str, raised: Exception) -> Exception:
        is_missing = isinstance(raised, FileNotFoundError)
        if not NO_BUCKET.search(str(raised)):
            if is_missing and what in ("read", "delete"):
                return NotThereError()
            if (what in ("create", "replace") and isinstance(raised, AlreadyExistsError | PreconditionError)) or (
                what == "replace" and is_missing
            ):
                return CASConflictError(f"another writer changed '{key}' in {self._place} first")
        description = _description(raised, self._place)
        cause = type(raised)(description) if isinstance(raised, BaseError | OSError) else RuntimeError(description)
        failure = StorageError(f"cannot {what} '{key}' in {self._place}: {description}", cause)
        failure.__cause__ = cause
        return failure


@cache
def _stores(place: Place) -> tuple[ObjectStore, ObjectStore]:
    """Return (for reads, for writes), shared by all users of a place and never dropped.

    A forked child must not close the connections of its parent.
    """
    try:
        return _store(place, READ_RETRIES), _store(place, 0)
    except Exception as raised:
        refused = ValueError(f"{place} cannot be used: {_description(raised, place)}")
    raise refused


def _store(place: Place, retries: int) -> ObjectStore:
    timeout = timedelta(seconds=place.timeout_seconds)
    return STORES[place.service](
        place.bucket,
        config=dict(place.config),
        client_options={
            "allow_http": (place.endpoint or "").startswith("http://"),
            "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, place.timeout_seconds)),
            "timeout": timeout,
        },
        retry_config={"max_retries": retries, "retry_timeout": timeout},
    )


def _description(raised: Exception, place: Place) -> str:
    """Describe a failure without credentials: no answer's body, no URL's query, no secret of the settings.

    A body can repeat the signed headers, a session token among them; of it only the error's code is kept.
    """
    head, _, details = str(raised).partition("\n\nDebug source:")
    if status := re.search(r"status code: (\d{3}[ \w]*)", head):
        code = re.search(r"<Code>(\w+)</Code>", head)
        text = f"{status[1].strip()} ({code[1]})" if code else status[1].strip()
    elif "TimedOut" in details or "kind: Timeout" in details:
        text = "no answer in time"
    elif system := re.search(r'(?:message|error): "([^"]+)"', details):
        text = system[1]
    else:
        text = re.sub(r"(https?://[^\s?]+)\?\S*", r"\1", LOGIN.sub("", head))
    for name, value in place.config:
        if SECRET.search(name) and isinstance(value, str) and len(value) >= SECRET_LENGTH:
            text = text.replace(value, "***")
    return text
