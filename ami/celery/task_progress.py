"""What a running task reports of its progress: a small file for each child, written by it and read by its parent."""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery.signals import worker_init, worker_shutdown

from ami.celery import storable

#: A file is one record, overwritten in place.
RECORD_BYTES = 512
LONGEST_TEXT = 255
#: A task that reports more often writes its latest report after this time.
SHORTEST_SECONDS = 0.1

_folder: Path | None = None
_file: tuple[int, int] | None = None
_written_at = 0.0


@dataclass(frozen=True)
class Progress:
    """A task's last report; ``at`` in epoch seconds."""

    task_id: str
    at: float
    text: str


def write(task_id: str, text: str) -> None:
    """Record the progress of the task that this process runs; outside a worker it does nothing."""
    global _file, _written_at
    now = time.time()
    if _folder is None or now - _written_at < SHORTEST_SECONDS:
        return
    if _file is None or _file[0] != os.getpid():
        path = _folder / str(os.getpid())
        _file = os.getpid(), os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    line = f"{now:.3f} {task_id} {text[:LONGEST_TEXT]}".encode("utf-8", "replace")[:RECORD_BYTES]
    with suppress(OSError):
        os.pwrite(_file[1], line.ljust(RECORD_BYTES), 0)
    _written_at = now


def read(pids: list[int]) -> dict[int, Progress]:
    """Return the last report of each of these processes that has made one; called in the parent."""
    found: dict[int, Progress] = {}
    if _folder is None:
        return {}
    for pid in pids:
        with suppress(OSError, ValueError):
            at, task_id, *text = (_folder / str(pid)).read_text("utf-8", "replace").rstrip().split(" ", 2)
            found[pid] = Progress(task_id, float(at), storable.text(text[0]) if text else "")
    return found


def install(app: Any) -> None:
    """Give every worker of ``app`` a folder for the reports of its children, before they are forked."""

    def make(sender: Any = None, **_: Any) -> None:
        global _folder
        if sender.app is app:
            _folder = Path(tempfile.mkdtemp(prefix="antenna-progress-"))

    def remove(**_: Any) -> None:
        if _folder is not None:
            shutil.rmtree(_folder, ignore_errors=True)

    worker_init.connect(make, weak=False, dispatch_uid=f"task_progress.make.{id(app)}")
    worker_shutdown.connect(remove, weak=False, dispatch_uid=f"task_progress.remove.{id(app)}")
