"""A real worker process with two children, and its processor time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.brokers.application import RECORD, VARIABLE, Settings

CHILDREN = 2
START_SECONDS = 60.0


class Worker:
    """A started worker; `begun` has its tasks' start times."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._log = Path(settings.folder) / "log"
        argv = [sys.executable, "-m", "celery", "-A", "benchmarks.brokers.consumer", "worker"]
        argv += ["--pool", "prefork", "--concurrency", str(CHILDREN), "--loglevel", "WARNING"]
        argv += ["--without-gossip", "--without-mingle", "--hostname", f"{settings.queue}@%h"]
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                argv,
                env={**os.environ, VARIABLE: settings.dump()},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id of its parent process."""
        return self._popen.pid

    def await_ready(self) -> None:
        """Wait until it consumes."""
        deadline = time.monotonic() + START_SECONDS
        while not self.settings.ready.exists():
            if self._popen.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the worker did not start; its log:\n{self._log.read_text(errors='replace')}")
            time.sleep(0.01)

    def begun(self) -> list[float]:
        """Return the tasks' start times (monotonic clock), sorted."""
        with suppress(FileNotFoundError):
            return sorted(moment for (moment,) in RECORD.iter_unpack(self.settings.begun.read_bytes()))
        return []

    def count(self) -> int:
        """Return the number of started tasks."""
        with suppress(FileNotFoundError):
            return self.settings.begun.stat().st_size // RECORD.size
        return 0

    def await_tasks(self, count: int, seconds: float) -> None:
        """Wait until ``count`` tasks have started, at most ``seconds``."""
        deadline = time.monotonic() + seconds
        while self.count() < count and time.monotonic() < deadline:
            time.sleep(0.02)

    def cpu_seconds(self) -> float:
        """Return the processor time of all its threads and children, to the nanosecond."""
        nanoseconds = 0
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                if os.getsid(int(process.name)) == self._popen.pid:
                    threads = process.glob("task/*/schedstat")
                    nanoseconds += sum(int(thread.read_text().split()[0]) for thread in threads)
        return nanoseconds / 1e9

    def kill(self) -> None:
        """Kill it and its children, which are in its session; its broker is temporary."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()


@contextmanager
def running(settings: Settings) -> Iterator[Worker]:
    """Start a worker and kill it afterwards."""
    worker = Worker(settings)
    try:
        yield worker
    finally:
        worker.kill()
