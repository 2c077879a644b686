"""Who runs what, and how large it is, in files that outlive every process of the worker."""

import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from celery.utils.log import get_logger

logger = get_logger(__name__)

#: A file is one fixed record, overwritten in place: what the child runs, then how large its parent saw it.
RUNS_BYTES, SIZE_BYTES = 480, 32
RUNS, IDLE = "R", "-"
NO_SIZE = b"0".ljust(SIZE_BYTES)


@dataclass(frozen=True)
class Entry:
    """One child's task as last written. ``kib`` is its memory when its parent last looked, 0 before the first look."""

    pid: int
    task: str
    id: str
    started_at: float
    kib: int


class Slate:
    """The child's side: one ``pwrite`` before each task and one after."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(
            folder / f"{os.getpid()}-{threading.get_native_id()}.run", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    def begins(self, task: str, task_id: str) -> None:
        """Write what is about to run. The page cache keeps it when every process is killed; no fsync is needed."""
        line = f"{RUNS} {time.time():.3f} {task_id} {task}".encode("utf-8", "replace")[: RUNS_BYTES - 1]
        os.pwrite(self._file, line.ljust(RUNS_BYTES) + NO_SIZE, 0)

    def ended(self) -> None:
        """Write that nothing runs."""
        os.pwrite(self._file, IDLE.encode(), 0)


class Board:
    """The parent's side of one worker. Only one live worker has the folder; another of the same name goes without.

    Raises:
        OSError: the folder cannot be made or written.
    """

    def __init__(self, folder: Path) -> None:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        for place in (folder.parent, folder):
            _refuse_open_to_others(place)
        self.folder = folder
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # A record lock: the children do not inherit it, so one that outlives this worker keeps no other from its board.
        fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._files: dict[int, int] = {}

    def left_behind(self) -> list[Entry]:
        """Return what ran when the worker before this one died, largest first, and wipe the board.

        A worker that was asked to stop says so on the board; what is found without that ran at a sudden death.
        """
        found, ending = [], self.folder / "ending"
        for path in self.folder.glob("*.run"):
            if (entry := _read(path)) and not ending.exists():
                found.append(entry)
            path.unlink(missing_ok=True)
        ending.unlink(missing_ok=True)
        return sorted(found, key=lambda entry: -entry.kib)

    def size(self, pid: int, kib: int) -> None:
        """Write how large the child is now."""
        with suppress(OSError):
            if pid not in self._files:
                path = next(self.folder.glob(f"{pid}-*.run"), None)
                if path is None:
                    return
                self._files[pid] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            os.pwrite(self._files[pid], str(kib).encode().ljust(SIZE_BYTES), RUNS_BYTES)

    def running(self) -> Iterator[Entry]:
        """What the board says now."""
        return (entry for path in self.folder.glob("*.run") if (entry := _read(path)))

    def forget(self, alive: set[int]) -> None:
        """Remove the files of children that are gone."""
        for path in self.folder.glob("*.run"):
            pid = _pid_of(path)
            if pid not in alive:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                    if pid in self._files:
                        os.close(self._files.pop(pid))

    def end(self) -> None:
        """The worker was asked to stop: nobody is to be suspected, however it ends."""
        (self.folder / "ending").touch()


def _refuse_open_to_others(folder: Path) -> None:
    """Refuse a folder that somebody else made or may write to: what lies there decides which task is buried."""
    found = folder.lstat()
    mine = found.st_uid in (os.getuid(), 0) and not (found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX)
    if not stat.S_ISDIR(found.st_mode) or not mine:
        raise PermissionError(f"{folder} is not this user's own folder")


def _pid_of(path: Path) -> int:
    """Return whose file it is; 0 for one that no child of ours wrote."""
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


class Suspects:
    """Which tasks were running when the worker died, and how often: kept in one JSON file beside the board."""

    #: A task that was running at so many sudden deaths is buried: alone with the second one, it did it.
    DEATHS = 2

    #: So many tasks are remembered, the newest.
    KEPT = 200

    def __init__(self, folder: Path) -> None:
        self._path = folder / "suspects.json"
        self._deaths = _kept_in(self._path)

    def __bool__(self) -> bool:
        return bool(self._deaths)

    def accuse(self, entries: list[Entry]) -> None:
        """Count one death for each task that was running at it."""
        for entry in entries:
            before = self._deaths.pop(entry.id, {})
            deaths = int(before.get("deaths", 0)) + 1
            self._deaths[entry.id] = {"task": entry.task, "deaths": deaths, "kib": entry.kib, "at": time.time()}
        self._save()

    def acquit(self, task_id: str) -> None:
        """The task ended without taking anybody along."""
        if self._deaths.pop(task_id, None) is not None:
            self._save()

    def lapse(self) -> None:
        """Suspect nobody any more who is not convicted: another worker has them, and lives."""
        if self.open:
            self._deaths = {key: kept for key, kept in self._deaths.items() if key not in self.open}
            self._save()

    @property
    def open(self) -> frozenset[str]:
        """The ids that are suspected and not yet convicted."""
        return frozenset(task_id for task_id, kept in self._deaths.items() if int(kept["deaths"]) < self.DEATHS)

    def convicted(self, task_id: str) -> str | None:
        """Return a sentence when the task is to be buried, or None."""
        kept = self._deaths.get(task_id)
        if kept is None or int(kept["deaths"]) < self.DEATHS:
            return None
        return (
            f"{kept['task']}[{task_id}] was running each of the {kept['deaths']} times this worker was killed at once, "
            f"last alone and with {int(kept['kib']) // 1024} MiB at the last look; it is buried, not run again."
        )

    def _save(self) -> None:
        self._deaths = dict(list(self._deaths.items())[-self.KEPT :])
        new = self._path.with_suffix(".new")
        with suppress(OSError):
            new.write_text(json.dumps(self._deaths))
            new.replace(self._path)


def _kept_in(path: Path) -> dict[str, dict[str, float | str]]:
    """Return what a worker before this one wrote; a file that is torn or of another shape tells of nobody."""
    try:
        kept = json.loads(path.read_text())
        return {
            task_id: {"task": one["task"], "deaths": int(one["deaths"]), "kib": int(one["kib"]), "at": one["at"]}
            for task_id, one in kept.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
