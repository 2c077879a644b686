"""Which process keeps the time of a broker: one per folder by a lock, one per bucket by its consumers' records."""

import os
from pathlib import Path
from typing import Protocol

from ami.transports.objectstore.storage.lock import try_lock, unlock


class Election(Protocol):
    """Whether this process is the one."""

    def is_won(self) -> bool:
        """Called once a second while it is not."""

    def observe(self, owners: set[str], alive: set[str]) -> None:
        """Called with all connections that consume, and those of this process, ``owners``."""

    def resign(self) -> None: ...


class LockElection:
    """The process that holds a lock; the kernel frees it when that process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def is_won(self) -> bool:
        if self._fd is not None and not self._is_in_place(self._fd):
            self.resign()
        if self._fd is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = try_lock(str(self._path))
        return self._fd is not None

    def _is_in_place(self, fd: int) -> bool:
        """Whether the file is still that of the folder, which may have been removed."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:
            return False

    def observe(self, owners: set[str], alive: set[str]) -> None:
        pass

    def resign(self) -> None:
        if self._fd is not None:
            unlock(self._fd)
            self._fd = None


class RecordElection:
    """The process with the first living consumer record: no request more than the records cost.

    Until the records were read, and for a moment after a change, several processes may win. What they do twice is
    recognised by its id.
    """

    def __init__(self) -> None:
        self._is_won = True

    def is_won(self) -> bool:
        return self._is_won

    def observe(self, owners: set[str], alive: set[str]) -> None:
        first = min(alive, default=None)
        self._is_won = first is None or first in owners

    def resign(self) -> None:
        self._is_won = True
