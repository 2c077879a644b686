"""The declarations of a broker: one object that is compared and set, and a copy that is known to be fresh."""

import random
import threading
import time
from collections.abc import Callable

from ami.transports.objectstore.broker.declarations import Declarations
from ami.transports.objectstore.storage.errors import CASConflictError, StorageError, UnfitStorageError
from ami.transports.objectstore.storage.port import Storage

KEY = "layout"
TRIES = 40

#: On a remote storage, a binding that another process made is seen after at most so long.
FRESH_SECONDS = 5.0


class DeclarationStore:
    """The declarations under `KEY` of a storage. Thread-safe."""

    def __init__(self, storage: Storage, failed: Callable[[StorageError], None] = lambda _: None) -> None:
        self._storage = storage
        #: Called with the error of each write that failed.
        self._failed = failed
        self._lock = threading.RLock()
        self._known: tuple[Declarations, str] | None = None
        self._signature: object = None
        self._read_at = 0.0

    def current(self, *, fresh: bool = False) -> Declarations:
        """Return the declarations: on one machine the newest ones, on a remote storage only with ``fresh``."""
        with self._lock:
            if self._storage.is_remote:
                if self._known and not fresh and time.monotonic() - self._read_at < FRESH_SECONDS:
                    return self._known[0]
                return self._read()[0]
            signature = self._storage_signature()
            if self._known is None or signature is None or signature != self._signature:
                self._signature = signature
                return self._read()[0]
            return self._known[0]

    def has_queue(self, name: str) -> bool:
        """Whether a queue is declared: on one machine now, on a remote storage when it was last read."""
        with self._lock:
            is_cached = self._storage.is_remote and self._known is not None
            known = self._known[0] if is_cached and self._known else self.current()
            return name in known.queues

    def change(self, change: Callable[[Declarations], Declarations]) -> Declarations:
        """Change the declarations, on top of what others changed; return the new ones.

        Raises what ``change`` raises, CASConflictError when others were faster many times over, and UnfitStorageError
        where the storage refuses all writes as conflicts.
        """
        with self._lock:
            declarations, version = self._known if self._known else self._read()
            for attempt in range(TRIES):
                changed = change(declarations)
                if changed is declarations and not attempt:
                    # The known declarations may be old.
                    declarations, version = self._read()
                    changed = change(declarations)
                if changed is declarations or changed == declarations:
                    return declarations
                try:
                    content = changed.dump()
                    write = self._storage
                    new = write.replace(KEY, content, version) if version else write.create(KEY, content)
                except CASConflictError:
                    time.sleep(0.002 * random.random() * (attempt + 1))  # noqa: S311 - spreads writers apart
                    declarations, version = self._read()
                    continue
                except StorageError as error:
                    self._failed(error)
                    raise
                self._known, self._read_at, self._signature = (changed, new), time.monotonic(), None
                return changed
        if not version:
            raise UnfitStorageError(f"the storage refuses to create '{KEY}' because it exists, and has no such object")
        raise CASConflictError(f"another process changed the declarations first, {TRIES} times in a row")

    def _storage_signature(self) -> object:
        signature = getattr(self._storage, "signature", None)
        return signature(KEY) if signature else None

    def _read(self) -> tuple[Declarations, str]:
        stored = self._storage.read(KEY)
        self._read_at = time.monotonic()
        if stored is None:
            self._known = (Declarations(), "")
        elif self._known is None or stored.version != self._known[1]:
            self._known = (Declarations.load(stored.content), stored.version)
        return self._known
