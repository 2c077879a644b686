"""Which child runs which task, and how large it is, in files that survive a crash of the worker."""

import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: A file is one fixed record, overwritten in place: the child's task, then the child's size as its parent measured it.
RUNS_BYTES, SIZE_BYTES = 480, 32
RUNS, IDLE = "R", "-"
NO_SIZE = b"0".ljust(SIZE_BYTES)


@dataclass(frozen=True)
class Entry:
    """One child's task as last written. ``kib`` is the child's memory at the last check, 0 before the first one."""

    pid: int
    task: str
    id: str
    started_at: float
    kib: int


class RunRecord:
    """The child's side: one ``pwrite`` before each task and one after."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(
            folder / f"{os.getpid()}-{threading.get_native_id()}.run", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    def task_started(self, task: str, task_id: str) -> None:
        """Write the task that is about to run. The page cache survives a kill of every process; no fsync is needed."""
        line = f"{RUNS} {time.time():.3f} {task_id} {task}".encode("utf-8", "replace")[: RUNS_BYTES - 1]
        os.pwrite(self._file, line.ljust(RUNS_BYTES) + NO_SIZE, 0)

    def task_ended(self) -> None:
        os.pwrite(self._file, IDLE.encode(), 0)


class RunLog:
    """The parent's side. One live worker owns the folder; another of the same name goes without.

    Raises:
        OSError: the folder cannot be created or written, or another worker owns it.
    """

    def __init__(self, folder: Path) -> None:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        for place in (folder.parent, folder):
            _refuse_open_to_others(place)
        self.folder = folder
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Children do not inherit a record lock: a child that outlives this worker does not keep the next one out.
        fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._files: dict[int, int] = {}

    def tasks_running_at_crash(self) -> list[Entry]:
        """Return what ran when the previous worker was killed, largest first, and remove its files.

        A worker that was asked to stop leaves a mark; then nothing is returned.
        """
        entries, stopping = [], self.folder / "ending"
        for path in self.folder.glob("*.run"):
            if (entry := _read(path)) and not stopping.exists():
                entries.append(entry)
            path.unlink(missing_ok=True)
        stopping.unlink(missing_ok=True)
        return sorted(entries, key=lambda entry: -entry.kib)

    def record_size(self, pid: int, kib: int) -> None:
        """Write how large the child is now."""
        with suppress(OSError):
            if pid not in self._files:
                path = next(self.folder.glob(f"{pid}-*.run"), None)
                if path is None:
                    return
                self._files[pid] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            os.pwrite(self._files[pid], str(kib).encode().ljust(SIZE_BYTES), RUNS_BYTES)

    def running(self) -> Iterator[Entry]:
        """Return the tasks that run now."""
        return (entry for path in self.folder.glob("*.run") if (entry := _read(path)))

    def remove_ended(self, alive: set[int]) -> None:
        """Remove the files of processes that are not among ``alive``."""
        for path in self.folder.glob("*.run"):
            pid = _pid_of(path)
            if pid not in alive:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                    if pid in self._files:
                        os.close(self._files.pop(pid))

    def mark_stopping(self) -> None:
        """Mark that the worker was asked to stop: no task is suspected, however the worker ends."""
        (self.folder / "ending").touch()


def _refuse_open_to_others(folder: Path) -> None:
    """Refuse a folder of another user, or one that others may write: its content decides which task is buried."""
    found = folder.lstat()
    mine = found.st_uid in (os.getuid(), 0) and not (found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX)
    if not stat.S_ISDIR(found.st_mode) or not mine:
        raise PermissionError(f"{folder} is not this user's own folder")


def _pid_of(path: Path) -> int:
    """Return the pid in a file's name; 0 for a foreign file."""
    pid = path.stem.partition("-")[0]
    return int(pid) if pid.isdecimal() else 0


def _read(path: Path) -> Entry | None:
    try:
        raw = path.read_bytes()
        state, started_at, task_id, task = raw[:RUNS_BYTES].decode("utf-8", "replace").split(None, 3)
        if state != RUNS:
            return None
        kib = int(raw[RUNS_BYTES:].split()[0])
        return Entry(_pid_of(path), task.strip(), task_id, float(started_at), kib)
    except (OSError, ValueError, IndexError):
        return None
