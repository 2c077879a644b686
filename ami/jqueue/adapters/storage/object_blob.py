"""A whole queue in one object of a bucket, through the client that this package installs."""

import asyncio
from typing import TYPE_CHECKING

from ami.jqueue.adapters.storage.moved import refuse_moved
from ami.jqueue.domain.errors import StorageError
from ami.transports.objectstore.storage.keys import quoted

if TYPE_CHECKING:
    # The client library is loaded by those who use it.
    from ami.transports.objectstore.storage.cloud import CloudObjects


class ObjectBlob:
    """The object at ``key``; an etag is the object's version. A key that would be spelled otherwise is refused."""

    def __init__(self, objects: "CloudObjects", key: str) -> None:
        if not _is_plain(key):
            raise StorageError(f"the key '{key}' holds other than letters, digits and _.-~/: pass a client of your own")
        self._objects = objects
        self._key = key
        self._has_no_journal = False

    async def read(self) -> tuple[bytes, str | None]:
        return await asyncio.to_thread(self._read)

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        return await asyncio.to_thread(self._write, content, if_match)

    def _read(self) -> tuple[bytes, str | None]:
        stored = self._objects.read(self._key)
        if stored is not None:
            refuse_moved(self._key, stored.content)
        if not self._has_no_journal:
            # The queue may have been opened with a journal.
            if self._objects.list(f"{self._key}/"):
                raise StorageError(f"a journal is kept below '{self._key}/': open it with journal=True")
            self._has_no_journal = True
        return (b"", None) if stored is None else (stored.content, stored.version)

    def _write(self, content: bytes, if_match: str | None) -> str:
        if if_match is None:
            return self._objects.create(self._key, content)
        return self._objects.replace(self._key, content, if_match)


def _is_plain(key: str) -> bool:
    """Whether the object has just this name."""
    try:
        return quoted(key) == key
    except ValueError:
        return False
