"""The folder of a journal: its lock and its tail, recognised when another folder took its place."""

import fcntl
import os
import secrets
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ami.transports.objectstore.journal.damage import Confirmed
from ami.transports.objectstore.journal.tail import BOOT_BYTES, Tail
from ami.transports.objectstore.storage.errors import StorageError, from_os

#: The name of a folder that is being removed, beside the original.
DESTROYED = ".destroyed-queue-"

#: How often a folder is made again that others remove at the same moment.
TRIES = 100

T = TypeVar("T")


class Place:
    """A folder with a file to lock and a file for the tail, both open; made where there is none.

    ``opened`` is called whenever it was opened: at first, and after it was closed or others removed the folder.
    """

    def __init__(self, folder: Path, durable: bool, opened: Callable[[], None]) -> None:
        self._lock_fd = self._tail_fd = -1
        self.folder = folder
        self._tail_path = str(folder / "tail")
        self._tail_inode = 0, 0
        self._durable = durable
        self._opened = opened
        _places.add(self)
        self._open()

    def locked(self, work: Callable[[], T]) -> T:
        """Do some work under the lock of the current folder. Raises StorageError for what the system refuses.

        No context manager: a time limit that interrupts its exit would keep the lock.
        """
        try:
            self._lock()
            return work()
        except OSError as error:
            raise from_os(f"{self.folder} failed: {error}", error) from error
        finally:
            if self._lock_fd >= 0:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def _lock(self) -> None:
        for _ in range(TRIES):
            if self._lock_fd >= 0:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
                if self.is_there():
                    return
            self._open()
        raise StorageError(f"{self.folder} was removed {TRIES} times while it was locked")

    def is_there(self) -> bool:
        """Whether it is open, and was not removed or replaced since.

        One look at a path, since every append asks: a repair replaces the tail, and where the folder is a mount point,
        the tail is removed first and the lock last.
        """
        if self._lock_fd < 0:
            return False
        try:
            tail = os.stat(self._tail_path)
        except FileNotFoundError:
            return False
        # No other file has the inode of one that is open.
        return (tail.st_dev, tail.st_ino) == self._tail_inode and os.fstat(self._lock_fd).st_nlink > 0

    def read_tail(self) -> Tail | None:
        """Return the tail, None where it is missing or was read while it was written."""
        return Tail.read(self._tail_fd) if self._tail_fd >= 0 else None

    def boot_of_tail(self) -> bytes:
        """Return what the tail begins with, unchecked: the id of a start of the system, or the flag for damage."""
        return os.pread(self._tail_fd, BOOT_BYTES, 0) if self._tail_fd >= 0 else b""

    def write_tail(self, tail: Tail) -> None:
        """Write the tail. Only under the lock."""
        tail.write(self._tail_fd)

    def read_confirmed(self) -> Confirmed | None:
        """Return the place up to which everything is on disk, None where it is not known."""
        return Confirmed.read(self._lock_fd)

    def confirm(self, segment: int, length: int) -> None:
        """Write down that everything up to this place is on disk."""
        if self._durable and self._lock_fd >= 0:
            Confirmed(segment, length).write(self._lock_fd)

    def names_to_disk(self) -> None:
        """Let the names in the folder survive a power failure, as its files do."""
        self._folders_to_disk(self.folder)

    def destroy(self, may: Callable[[], bool] = lambda: True) -> bool:
        """Remove everything, if ``may`` allows it under the lock; return whether it did.

        A process that waits for the lock makes the folder again. It is renamed first: a folder that is half removed
        could not be read.
        """
        if not self.locked(lambda: may() and self._remove()):
            return False
        self.close()
        for path in self.folder.parent.glob(f"{DESTROYED}*"):
            shutil.rmtree(path, ignore_errors=True)
        return True

    def _remove(self) -> bool:
        try:
            self.folder.rename(self.folder.with_name(f"{DESTROYED}{secrets.token_hex(8)}"))
        except OSError:
            # A mount point cannot be renamed. The lock is removed last, so that all others wait.
            for path in sorted(self.folder.iterdir(), key=lambda path: (path.name == "lock", path.name != "tail")):
                path.unlink(missing_ok=True)
        self._folders_to_disk(self.folder.parent)
        return True

    def close(self) -> None:
        """Close it; the next use opens it again."""
        for fd in (self._lock_fd, self._tail_fd):
            if fd >= 0:
                os.close(fd)
        self._lock_fd = self._tail_fd = -1

    def __del__(self) -> None:
        # A store has no end of its own.
        self.close()

    def _open(self) -> None:
        self.close()
        self._opened()
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                # Those above it may be new as well.
                self._folders_to_disk(self.folder.parent, self.folder.parent.parent)
            self._lock_fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._tail_fd = os.open(self._tail_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            tail = os.fstat(self._tail_fd)
            self._tail_inode = tail.st_dev, tail.st_ino
        except FileNotFoundError:
            # Removed by others between two of these steps; `_lock` tries again.
            self.close()
        except OSError as error:
            self.close()
            raise from_os(f"{self.folder} cannot be used: {error}", error) from error

    def _folders_to_disk(self, *folders: Path) -> None:
        for folder in folders if self._durable else ():
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


_places: "weakref.WeakSet[Place]" = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """In a forked child: its copies would hold on a lock that another thread of the parent had, if that is killed."""
    for place in list(_places):
        place.close()


os.register_at_fork(after_in_child=_leave_to_the_parent)
