"""A storage that counts its requests, for benchmarks and tests."""

import math
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ami.transports.objectstore.storage.port import Storage, Stored

#: The keys in a page of a list on S3 and Google Cloud Storage; Azure's pages are larger.
PAGE_KEYS = 1000


class Traffic(NamedTuple):
    """Requests by kind, and the contents' bytes; headers are not counted."""

    read: int = 0
    create: int = 0
    replace: int = 0
    delete: int = 0
    list: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0

    @property
    def requests(self) -> int:
        """All requests together."""
        return self.read + self.create + self.replace + self.delete + self.list

    def since(self, earlier: "Traffic") -> "Traffic":
        """Return what was added since then."""
        return Traffic(*(now - then for now, then in zip(self, earlier, strict=True)))


class RequestCounter:
    """A `Storage` around another one, used from any thread.

    Refused requests count, since they are billed like any other. A list counts once for each 1000 keys that it found.
    An adapter's own retries are not seen.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def is_remote(self) -> bool:
        return self._storage.is_remote

    @property
    def signature(self) -> Callable[[str], tuple[int, int, int] | None] | None:
        """The other storage's `signature`, uncounted; None where it has none."""
        look: Any = getattr(self._storage, "signature", None)
        return look  # type: ignore[no-any-return]

    @property
    def traffic(self) -> Traffic:
        with self._lock:
            return Traffic(**self._counts)

    def read(self, key: str) -> Stored | None:
        self._count(read=1)
        stored = self._storage.read(key)
        self._count(bytes_received=len(stored.content) if stored else 0)
        return stored

    def create(self, key: str, content: bytes) -> str:
        self._count(create=1, bytes_sent=len(content))
        return self._storage.create(key, content)

    def replace(self, key: str, content: bytes, version: str) -> str:
        self._count(replace=1, bytes_sent=len(content))
        return self._storage.replace(key, content, version)

    def delete(self, key: str) -> None:
        self._count(delete=1)
        self._storage.delete(key)

    def list(self, prefix: str) -> list[str]:
        self._count(list=1)
        keys = self._storage.list(prefix)
        self._count(list=max(math.ceil(len(keys) / PAGE_KEYS) - 1, 0))
        return keys

    def _count(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)
