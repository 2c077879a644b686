"""The reserve of a folder broker: disk space that is given up on a full disk, so that its queues can be drained."""

import fcntl
import logging
import os
import time
from contextlib import suppress
from pathlib import Path

from ami.transports.objectstore.storage.errors import StorageFullError

log = logging.getLogger(__name__)

#: Its size at first, and once a queue fills more than one segment; never more than this share of the file system.
FIRST_BYTES, FULL_BYTES, SHARE = 4 * 1024**2, 32 * 1024**2, 0.05

#: It is made again when so many times its size are free: room for new messages beside it.
FREE_TIMES = 2

#: The pause between two tries to make it again, at first and at its longest.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 8.0

#: How long a process relies on what it saw of the file.
SEEN_SECONDS = 0.05


class Reserve:
    """The file ``reserve`` of a broker's folder, allocated and never written to. Any process gives it up and makes it.

    While it is missing, no message is accepted: what is free belongs to claims, acknowledgements and burials.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "reserve"
        self._bytes = FIRST_BYTES
        self._pause = FIRST_PAUSE_SECONDS
        self._next_try = 0.0
        self._seen_at, self._seen = 0.0, False

    def is_there(self) -> bool:
        now = time.monotonic()
        if now - self._seen_at > SEEN_SECONDS:
            self._seen, self._seen_at = self.path.exists(), now
        return self._seen

    def refusal(self) -> StorageFullError | None:
        """Return why no message is accepted now; None where the reserve is there, or could be made again."""
        if self.is_there() or self.restore():
            return None
        needed = f"{self._needed():,}"
        return StorageFullError(
            f"the disk of {self.path.parent} is full: no message is accepted before {needed} bytes are free"
        )

    def give_up(self) -> bool:
        """Remove it; return whether it was there."""
        self._seen_at = 0.0
        try:
            self.path.unlink()
        except OSError:
            return False
        self._next_try = time.monotonic() + self._pause
        log.warning("The disk is full; gave up the reserve: %s. No message is accepted until it is back", self.path)
        return True

    def restore(self) -> bool:
        """Make it again where there is room, after a pause that grows from try to try; return whether it is there."""
        if time.monotonic() < self._next_try:
            return False
        self._seen_at = 0.0
        if self.path.exists():
            return True
        with suppress(OSError):
            if self._free() >= self._needed() and self._allocate():
                self._pause = FIRST_PAUSE_SECONDS
                return True
        self._next_try = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        return False

    def grow(self) -> None:
        """Let it have its full size from now on, where there is room."""
        self._bytes = FULL_BYTES
        with suppress(OSError):
            if self.path.stat().st_size < self._size() and self._free() >= self._needed():
                self._extend(self.path)

    def _size(self) -> int:
        disk = os.statvfs(self.path.parent)
        return min(self._bytes, int(disk.f_blocks * disk.f_frsize * SHARE))

    def _needed(self) -> int:
        return FREE_TIMES * self._size()

    def _free(self) -> int:
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize

    def _allocate(self) -> bool:
        """Allocate it under another name first: one of its name is whole."""
        partial = self.path.with_name(".reserve-in-the-making")
        try:
            self._extend(partial)
            partial.rename(self.path)
        except BlockingIOError:
            return False  # Another process is making it.
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        return True

    def _extend(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(fd, 0, self._size())
        finally:
            os.close(fd)
