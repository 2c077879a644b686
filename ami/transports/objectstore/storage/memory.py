"""Objects in this process's memory."""

import itertools
import threading

from ami.transports.objectstore.storage.errors import CASConflictError
from ami.transports.objectstore.storage.keys import folder_of, quoted
from ami.transports.objectstore.storage.port import Stored


class MemoryObjects:
    """A `Storage` for the threads of one process. Each write has its own version number."""

    is_remote = False

    def __init__(self) -> None:
        self._objects: dict[str, Stored] = {}
        self._versions = itertools.count(1)
        self._lock = threading.Lock()

    def read(self, key: str) -> Stored | None:
        quoted(key)
        return self._objects.get(key)

    def create(self, key: str, content: bytes) -> str:
        quoted(key)
        with self._lock:
            if key in self._objects:
                raise CASConflictError(f"'{key}' exists already")
            return self._put(key, content)

    def replace(self, key: str, content: bytes, version: str) -> str:
        quoted(key)
        with self._lock:
            stored = self._objects.get(key)
            if stored is None or stored.version != version:
                raise CASConflictError(f"'{key}' is no longer of version {version}")
            return self._put(key, content)

    def delete(self, key: str) -> None:
        quoted(key)
        with self._lock:
            self._objects.pop(key, None)

    def list(self, prefix: str) -> list[str]:
        folder_of(prefix)
        with self._lock:
            return sorted(key for key in self._objects if key.startswith(prefix))

    def _put(self, key: str, content: bytes) -> str:
        version = str(next(self._versions))
        self._objects[key] = Stored(bytes(content), version)
        return version
