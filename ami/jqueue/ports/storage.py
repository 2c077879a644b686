"""The port of a storage that holds a whole queue in one blob: any object with these two methods."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class ObjectStoragePort(Protocol):
    """One blob with a version token, its etag. Any object with these two coroutines satisfies it, without inheriting.

    Both may raise `StorageError` where the storage fails; whatever else they raise reaches the caller unchanged.
    """

    async def read(self) -> tuple[bytes, str | None]:
        """Return (content, etag), ``(b"", None)`` where the blob does not exist yet."""

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        """Write the blob only where its etag still is ``if_match``; return the new etag.

        ``if_match`` None is the first write. It should create the blob and refuse one that exists by now: a storage
        that overwrites loses what another first writer enqueued.

        Raises `CASConflictError` where another process wrote since; nothing was written then.
        """
