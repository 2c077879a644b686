"""Which process keeps the time of a broker: one per folder by a lock, one per bucket by its consumers' records."""

import math
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ami.transports.objectstore.storage.lock import try_lock, unlock

#: One that did not confirm for so long that it keeps the time is replaced: it was stopped, and its lock stayed.
STALE_SECONDS = 90.0


class Election(Protocol):
    """Whether this process is the one."""

    def is_won(self) -> bool:
        """Called once a second while it is not, and at least every 30 seconds while it is."""

    def term(self) -> int | None:
        """Return a number that stays the same while this process keeps the time, None while it does not.

        Called before each delivery: a process that was stopped may have been replaced, and even have won again.
        """

    def observe(self, owners: set[str], alive: set[str], seconds: float) -> None:
        """Called with all connections that consume, and those of this process, ``owners``.

        They count as alive for ``seconds`` from now on.
        """

    def resign(self) -> None: ...


class LockElection:
    """The process that holds a lock; the kernel frees it when that process dies.

    One that is stopped keeps the lock, but the file's time grows old: another process puts a new file in its place.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._terms = 0

    def is_won(self) -> bool:
        if self.term() is not None:
            return True
        self.resign()
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._fd = try_lock(str(self._path))
        if self._fd is None and self._is_stale():
            self._fd = self._replaced()
        self._terms += 1
        return self.term() is not None

    def term(self) -> int | None:
        if self._fd is None or not self._is_in_place(self._fd):
            return None
        os.utime(self._fd)
        return self._terms

    def _is_in_place(self, fd: int) -> bool:
        """Whether the file is still that of the folder, which may have been removed or replaced."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _is_stale(self) -> bool:
        with suppress(FileNotFoundError):
            return time.time() - os.stat(self._path).st_mtime > STALE_SECONDS
        return False

    def _replaced(self) -> int | None:
        """Put a new file in place, locked; of several processes that do so, the last one has won."""
        partial = self._path.with_name(f"{self._path.name}-{secrets.token_hex(4)}")
        fd = try_lock(str(partial))
        partial.rename(self._path)
        return fd

    def observe(self, owners: set[str], alive: set[str], seconds: float) -> None:
        pass

    def resign(self) -> None:
        if self._fd is not None:
            unlock(self._fd)
            self._fd = None


class RecordElection:
    """The process with the first living consumer record: no request more than the records cost.

    Until the records were read, and for a moment after a change, several processes may win. What they do twice is
    recognised by its id, for two minutes. One whose record has ended since it read them was stopped, and may have been
    replaced: it does not win before it has read them again.
    """

    def __init__(self) -> None:
        self._is_won = True
        self._until = math.inf
        self._terms = 0

    def is_won(self) -> bool:
        return self.term() is not None

    def term(self) -> int | None:
        return self._terms if self._is_won and time.monotonic() < self._until else None

    def observe(self, owners: set[str], alive: set[str], seconds: float) -> None:
        first = min(alive, default=None)
        if self.term() is None:
            self._terms += 1
        self._is_won, self._until = first is None or first in owners, time.monotonic() + seconds

    def resign(self) -> None:
        self._is_won, self._until = True, math.inf
