"""Wakes consumers on the same machine: a publisher writes to one file per queue, which its consumers watch."""

import logging
import os
import select
import stat
import sys
from contextlib import suppress
from pathlib import Path

from ami.transports.objectstore.storage.errors import StorageError

if sys.platform == "linux":
    from inotify_simple import INotify, flags
else:  # Consumers poll instead.
    INotify = None

log = logging.getLogger(__name__)

#: The interval of consumers that cannot be notified.
POLL_SECONDS = 0.1


def make_private_folder(folder: Path) -> Path:
    """Make a folder that only this user can write to. Raises StorageError where another user could."""
    for one in (folder.parent, folder):
        one.mkdir(parents=True, exist_ok=True, mode=0o700)
    for one in (folder.parent, folder):
        found = one.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise StorageError(f"{one} is not this user's alone; remove it, or set XDG_RUNTIME_DIR")
    return folder


class Notifier:
    """The notification file of one queue."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def notify(self) -> None:
        """Wake every listener. A failure is ignored: it only delays them."""
        with suppress(OSError):
            if self._fd < 0 or not os.fstat(self._fd).st_nlink:
                self.close()
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.pwrite(self._fd, b"!", 0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class Listener:
    """Waits for notifications and for `wake`; its file descriptors fit an event loop."""

    def __init__(self) -> None:
        self._inotify = _inotify()
        #: Queues whose file could not be watched: they are polled.
        self._polled: set[str] = set()
        self._wake_out, self._wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._queues: dict[int, str] = {}
        self._watched: dict[str, int] = {}

    @property
    def filenos(self) -> tuple[int, ...]:
        """The file descriptors to wait for with select or an event loop."""
        return (self._wake_out, self._inotify.fileno()) if self._inotify else (self._wake_out,)

    @property
    def can_listen(self) -> bool:
        """Whether notifications of all queues arrive; where they do not, the consumer polls."""
        return self._inotify is not None and not self._polled

    @property
    def watched(self) -> set[str]:
        """The queues whose notifications arrive."""
        return set(self._watched)

    def watch(self, queue: str, path: Path) -> None:
        if queue in self._watched:
            return
        if self._inotify is None:
            self._watched[queue] = 0
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            number = self._inotify.add_watch(path, flags.MODIFY)
        except OSError as error:
            _warn_once(f"{queue} cannot be watched ({error})")
            self._polled.add(queue)
            self._watched[queue] = 0
            return
        self._queues[number], self._watched[queue] = queue, number

    def unwatch(self, queue: str) -> None:
        number = self._watched.pop(queue, None)
        self._polled.discard(queue)
        if number and self._inotify is not None:
            self._queues.pop(number, None)
            with suppress(OSError):
                self._inotify.rm_watch(number)

    def notified(self) -> set[str]:
        """Return the queues that were notified since the last call; all of them where notifications do not arrive."""
        with suppress(BlockingIOError):
            while os.read(self._wake_out, 4096):
                pass
        if self._inotify is None:
            return set(self._watched)
        # A watch that could not be set up is polled, each time that anything wakes this.
        queues = (self._queues.get(event.wd) for event in self._inotify.read(timeout=0))
        return {queue for queue in queues if queue is not None} | self._polled

    def wait(self, seconds: float | None) -> None:
        """Return at a notification, at the latest after ``seconds``."""
        if not self.can_listen:
            seconds = POLL_SECONDS if seconds is None else min(seconds, POLL_SECONDS)
        select.select(self.filenos, [], [], seconds)

    def wake(self) -> None:
        """End a `wait`; from any thread."""
        with suppress(OSError):
            os.write(self._wake_in, b"!")

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
        for fd in (self._wake_out, self._wake_in):
            if fd >= 0:
                with suppress(OSError):
                    os.close(fd)
        self._wake_out = self._wake_in = -1

    def __del__(self) -> None:
        # A connection that failed while it was closed may have opened another one.
        self.close()


def _inotify() -> "INotify | None":
    """Return an inotify instance; None where the system has none, or none that is free."""
    if INotify is None:
        return None
    try:
        return INotify(nonblocking=True)
    except OSError as error:
        _warn_once(f"no inotify instance is free ({error}); see fs.inotify.max_user_instances")
        return None


_has_warned = False


def _warn_once(reason: str) -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        log.warning("Consumers poll every %s s: %s", POLL_SECONDS, reason)
