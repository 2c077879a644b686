"""The layout as everybody sees it: one object that is compared and set, and a copy that is known to be fresh."""

import random
import threading
import time
from collections.abc import Callable

from ami.transports.objectstore.broker.declarations import Layout
from ami.transports.objectstore.storage.errors import CASConflictError
from ami.transports.objectstore.storage.port import Storage

KEY = "layout"
TRIES = 40

#: On a remote storage a binding that another process made is seen after so long at the latest.
FRESH_SECONDS = 5.0


class Catalogue:
    """The layout under `KEY` of a storage. Thread-safe."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.RLock()
        self._known: tuple[Layout, str] | None = None
        self._signature: object = None
        self._read_at = 0.0

    def current(self, *, fresh: bool = False) -> Layout:
        """Return the layout. On one machine it is the newest one; on a remote storage with ``fresh``."""
        with self._lock:
            if self._storage.is_remote:
                if self._known and not fresh and time.monotonic() - self._read_at < FRESH_SECONDS:
                    return self._known[0]
                return self._read()[0]
            signature = self._told()
            if self._known is None or signature is None or signature != self._signature:
                self._signature = signature
                return self._read()[0]
            return self._known[0]

    def change(self, change: Callable[[Layout], Layout]) -> Layout:
        """Change the layout, on top of what others changed; return the new one.

        Raises what ``change`` raises, and CASConflictError when others were faster many times over.
        """
        with self._lock:
            layout, version = self._known if self._known else self._read()
            for attempt in range(TRIES):
                changed = change(layout)
                if changed is layout and not attempt:
                    # What is known may be old, and the answer with it.
                    layout, version = self._read()
                    changed = change(layout)
                if changed is layout or changed == layout:
                    return layout
                try:
                    content = changed.dump()
                    write = self._storage
                    new = write.replace(KEY, content, version) if version else write.create(KEY, content)
                except CASConflictError:
                    time.sleep(0.002 * random.random() * (attempt + 1))  # noqa: S311 - spreads writers apart
                    layout, version = self._read()
                    continue
                self._known, self._read_at, self._signature = (changed, new), time.monotonic(), None
                return changed
        raise CASConflictError(f"{TRIES} times another process changed the layout first")

    def _told(self) -> object:
        tell = getattr(self._storage, "signature", None)
        return tell(KEY) if tell else None

    def _read(self) -> tuple[Layout, str]:
        stored = self._storage.read(KEY)
        self._read_at = time.monotonic()
        if stored is None:
            self._known = (Layout(), "")
        elif self._known is None or stored.version != self._known[1]:
            self._known = (Layout.load(stored.content), stored.version)
        return self._known
