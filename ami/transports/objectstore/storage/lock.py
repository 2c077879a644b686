"""One lock for all processes and threads that write to a folder."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ami.transports.objectstore.storage.errors import StorageError

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.0002, 0.02

#: The lock files that threads of this process hold open.
_open: set[int] = set()


@contextmanager
def locked(path: str, seconds: float) -> Iterator[None]:
    """Hold the lock that the file at ``path`` is, made where there is none.

    Opened again each time, it excludes threads like processes, and the kernel frees it when its holder dies.

    Raises:
        StorageError: others held it for ``seconds``.
        OSError: the file cannot be opened.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _open.add(fd)
    try:
        _wait(fd, path, seconds)
        yield
    finally:
        _open.discard(fd)
        # Freed first and closed then: a child that was forked meanwhile shares the lock until it has closed it.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _wait(fd: int, path: str, seconds: float) -> None:
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE_SECONDS
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StorageError(f"'{path}' was locked by others for {seconds:g} s") from None
        # The kernel would wait without an end, also for a process that is stopped.
        time.sleep(pause)
        pause = min(1.5 * pause, LONGEST_PAUSE_SECONDS)


def _close_inherited() -> None:
    """In a forked child: else it would hold what its parent's other threads held, should the parent be killed."""
    for fd in _open:
        with suppress(OSError):
            os.close(fd)
    _open.clear()


os.register_at_fork(after_in_child=_close_inherited)


def try_lock(path: str) -> int | None:
    """Take the lock that the file at ``path`` is and return its descriptor; None where another one holds it.

    Kept until `unlock`, or until this process ends; a forked child does not hold it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _open.add(fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _open.discard(fd)
        os.close(fd)
        return None
    return fd


def unlock(fd: int) -> None:
    """Free what `try_lock` took."""
    _open.discard(fd)
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
