"""Keeps one slot of every worker free of long work, so that a short task always finds one.

Long work holds a lock file of its worker while it runs. The kernel frees a lock with the process that held it, so a
killed child leaves no lock.
"""

import fcntl
import os
import tempfile
from pathlib import Path
from typing import Any

from celery.signals import task_postrun

#: Marks a message whose work is known to be long: it does nothing before it has a slot for long work.
LONG_HEADER = "antenna_long"

#: The delay of the successor of a slice that made room for other work.
ROOM_SECONDS = 1

#: Open lock files by the id of the task that holds one; closing a file frees its lock.
_held: dict[str, int] = {}


def take(worker: str, slots: int, task_id: str) -> bool:
    """Take one of the ``slots`` for long work of ``worker`` (its node name); return whether one was free."""
    folder = Path(tempfile.gettempdir()) / f"antenna-{os.getuid()}" / f"{worker}-{_worker_pid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(slots):
        handle = os.open(folder / str(number), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            continue
        _held[task_id] = handle
        return True
    return False


def _worker_pid() -> int:
    """The pid that the children of one prefork worker share: their parent's; the other pools need no more."""
    return os.getppid()


@task_postrun.connect(dispatch_uid="antenna_free_slot")
def free(task_id: str = "", **_: Any) -> None:
    """Free the slot that the task held, if it held one."""
    handle = _held.pop(task_id, None)
    if handle is not None:
        os.close(handle)
