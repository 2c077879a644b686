"""The storage port: five operations on whole objects under keys, each atomic, each spelled out."""

from typing import NamedTuple, Protocol, runtime_checkable


class Stored(NamedTuple):
    """One object as it was read: its bytes, and the version that a replace must name."""

    content: bytes
    version: str


@runtime_checkable
class Storage(Protocol):
    """Objects under keys (``/`` separates folders), from any thread.

    Every call happens whole or not at all. One that raised `StorageError` may have happened all the same: its
    answer was lost. A caller that retries must recognise its own write. There is no conditional delete.

    Raises, all of them: `StorageError` where the storage does not answer, refuses, or holds a torn object.
    """

    #: Whether each call is a request over a network, which takes its time and may cost money.
    is_remote: bool

    def read(self, key: str) -> Stored | None:
        """Return the object, None where there is none."""

    def create(self, key: str, content: bytes) -> str:
        """Write an object that must not exist yet; return its version. Raises `CASConflictError` where it does."""

    def replace(self, key: str, content: bytes, version: str) -> str:
        """Write over the object whose version is ``version``; return the new one.

        Raises `CASConflictError` where it has another version or does not exist.
        """

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is ignored."""

    def list(self, prefix: str) -> list[str]:
        """Return the keys that begin with ``prefix``, sorted."""
