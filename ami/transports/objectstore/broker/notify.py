"""How a writer wakes those who wait on the same machine: a file per queue that it touches and they watch."""

import os
import select
import stat
import sys
from contextlib import suppress
from pathlib import Path

from ami.transports.objectstore.storage.errors import StorageError

if sys.platform == "linux":
    from inotify_simple import INotify, flags
else:  # Whoever waits looks again each tenth of a second.
    INotify = None

#: How long anybody waits at most where nothing can wake them.
POLL_SECONDS = 0.1


def private(folder: Path) -> Path:
    """Make a folder that nobody else can write to. Raises StorageError for one that somebody else made."""
    for one in (folder.parent, folder):
        one.mkdir(parents=True, exist_ok=True, mode=0o700)
    for one in (folder.parent, folder):
        found = one.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise StorageError(f"{one} is not this user's alone; remove it, or set XDG_RUNTIME_DIR")
    return folder


class Bell:
    """One queue's file; ringing is one write to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def ring(self) -> None:
        """Wake everybody who watches; a bell that cannot be rung only delays them."""
        with suppress(OSError):
            if self._fd < 0 or not os.fstat(self._fd).st_nlink:
                self.close()
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.pwrite(self._fd, b"!", 0)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class Ear:
    """Waits for bells and for `wake`; its file number fits an event loop."""

    def __init__(self) -> None:
        self._inotify = INotify(nonblocking=True) if INotify else None
        self._wake_out, self._wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._queues: dict[int, str] = {}
        self._watched: dict[str, int] = {}

    @property
    def filenos(self) -> tuple[int, ...]:
        """What to wait for with select or an event loop."""
        return (self._wake_out, self._inotify.fileno()) if self._inotify else (self._wake_out,)

    @property
    def hears(self) -> bool:
        """Whether bells wake who waits here; where they do not, looking again does."""
        return self._inotify is not None

    @property
    def watched(self) -> set[str]:
        """The queues whose bells are heard."""
        return set(self._watched)

    def watch(self, queue: str, bell: Path) -> None:
        """Hear this bell from now on."""
        if queue in self._watched:
            return
        if self._inotify is None:
            self._watched[queue] = 0
            return
        bell.parent.mkdir(parents=True, exist_ok=True)
        bell.touch(0o600)
        number = self._inotify.add_watch(bell, flags.MODIFY)
        self._queues[number], self._watched[queue] = queue, number

    def unwatch(self, queue: str) -> None:
        """Hear it no more."""
        number = self._watched.pop(queue, None)
        if number and self._inotify is not None:
            self._queues.pop(number, None)
            with suppress(OSError):
                self._inotify.rm_watch(number)

    def heard(self) -> set[str]:
        """Return the queues whose bells rang since the last time; all of them where bells cannot be heard."""
        with suppress(BlockingIOError):
            while os.read(self._wake_out, 4096):
                pass
        if self._inotify is None:
            return set(self._watched)
        rung = (self._queues.get(event.wd) for event in self._inotify.read(timeout=0))
        return {queue for queue in rung if queue is not None}

    def wait(self, seconds: float | None) -> None:
        """Return when a bell rings, at the latest after ``seconds``."""
        if self._inotify is None:
            seconds = POLL_SECONDS if seconds is None else min(seconds, POLL_SECONDS)
        select.select(self.filenos, [], [], seconds)

    def wake(self) -> None:
        """Wake whoever waits here; from any thread."""
        with suppress(OSError):
            os.write(self._wake_in, b"!")

    def close(self) -> None:
        """Hear nothing any more."""
        if self._inotify is not None:
            self._inotify.close()
        for fd in (self._wake_out, self._wake_in):
            with suppress(OSError):
                os.close(fd)
