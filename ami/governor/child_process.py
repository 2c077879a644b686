"""What happens inside each process that runs tasks: its memory limit, its staggered start, and its run record."""

import fcntl
import os
import resource
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery.signals import task_postrun, task_prerun, worker_process_init
from celery.utils.log import get_logger

from ami.governor import memory_limit
from ami.governor.crash_log import RunRecord
from ami.governor.probes import process

logger = get_logger(__name__)

#: A task that adds less is not recorded.
MIN_SAMPLE_KIB = 1024


@dataclass
class ChildHooks:
    """Installed in the parent before it forks. ``folder`` None: no run log; ``limit_kib`` 0: no memory limit;
    ``hard_kib`` 0: the parent ends no child for its memory.
    """

    folder: Path | None
    limit_kib: int = 0
    stagger_seconds: float = 0.0
    learns: bool = False
    hard_kib: int = 0
    _local: threading.local = field(default_factory=threading.local)

    def install(self) -> None:
        """Connect to Celery's signals, replacing earlier hooks."""
        listeners = [(worker_process_init, self._process_started, "governor.child")]
        if self.folder is not None:
            listeners += [
                (task_prerun, self._before_task, "governor.before"),
                (task_postrun, self._after_task, "governor.after"),
            ]
        for signal, listener, uid in listeners:
            signal.disconnect(dispatch_uid=uid)  # Celery would keep the listener that it has.
            signal.connect(listener, weak=False, dispatch_uid=uid)

    def _process_started(self, **_: Any) -> None:
        if self.stagger_seconds and self.folder is not None:
            try:
                wait_for_turn(self.folder / "turn", self.stagger_seconds)
            except OSError as error:
                logger.warning("Staggered start skipped: %r", error)
        memory_limit.hard_kib = self.hard_kib
        if self.limit_kib:
            try:
                memory_limit.impose(self.limit_kib)
            except (OSError, ValueError) as error:
                logger.warning("Memory limit not set for this process: %r", error)

    def _before_task(self, sender: Any = None, task_id: str = "", **_: Any) -> None:
        local = self._local
        if getattr(local, "pid", None) != os.getpid():
            local.pid, local.record = os.getpid(), None
            with suppress(OSError):
                local.record = RunRecord(self.folder)  # type: ignore[arg-type]
        if local.record:
            local.record.task_started(sender.name, task_id)
        if self.learns:
            local.before_kib, local.peak_kib = process.rss_kib(local.pid), _peak_kib()

    def _after_task(self, sender: Any = None, **_: Any) -> None:
        local = self._local
        if getattr(local, "record", None):
            local.record.task_ended()
        if self.learns and hasattr(local, "before_kib"):
            peak = _peak_kib()
            # The peak of a process never falls: it is this task's only when this task raised it.
            reached = max(process.rss_kib(local.pid), peak if peak > local.peak_kib else 0)
            self._write_sample(sender.name, reached - local.before_kib)

    def _write_sample(self, task: str, added_kib: int) -> None:
        if added_kib < MIN_SAMPLE_KIB or self.folder is None:
            return
        with suppress(OSError), (self.folder / f"{os.getpid()}.sizes").open("a") as file:
            file.write(f"{added_kib} {task}\n")


def read_samples(folder: Path) -> list[tuple[str, int]]:
    """Return and remove what the children have written: task names and the KiB that a run of each added."""
    samples = []
    for path in folder.glob("*.sizes"):
        # A line written between the rename and the read is read too: the child opens the file again for each line.
        taken = path.with_suffix(".taken")
        with suppress(OSError, ValueError):
            path.rename(taken)
            for line in taken.read_text().splitlines():
                added, _, task = line.partition(" ")
                samples.append((task, int(added)))
        with suppress(OSError):
            taken.unlink(missing_ok=True)
    return samples


def wait_for_turn(path: Path, seconds: float) -> None:
    """Return when the last process started at least ``seconds`` ago; one process at a time returns."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        last = 0.0
        with suppress(ValueError):  # A torn file is ignored.
            last = float(os.read(handle, 64))
        # All processes share the monotonic clock of one boot; a file of an earlier boot may be ahead of it.
        ahead = last + seconds - time.monotonic()
        if 0 < ahead <= seconds:
            time.sleep(ahead)
        os.pwrite(handle, f"{time.monotonic():<32.6f}".encode(), 0)
    finally:
        os.close(handle)


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
