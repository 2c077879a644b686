"""Tasks for the tests of dead letters: each leaves a file per run, so that effects can be counted."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import shared_task


@shared_task(bind=True, max_retries=0)
def leave(self: Any, folder: str, order: int = 0) -> None:
    """Leave a file with the task's id; a second run leaves a second one."""
    _leave(folder, f"{order:06d} {time.monotonic_ns()} {self.request.id}")


@shared_task(bind=True, max_retries=0)
def kill_if(self: Any, folder: str, poison: bool) -> None:
    """Kill the own process, unless the argument is False."""
    if poison:
        os.kill(os.getpid(), signal.SIGKILL)
    _leave(folder, f"ran {time.monotonic_ns()} {self.request.id}")


@shared_task(max_retries=0)
def of_job(folder: str, job_id: int) -> None:
    """Leave a file that names the job."""
    _leave(folder, f"job {job_id} {time.monotonic_ns()}")


@shared_task(max_retries=1, default_retry_delay=0, soft_time_limit=1, time_limit=20)
def exceed_soft_limit() -> None:
    """Sleep until the soft time limit ends it."""
    time.sleep(15)


def _leave(folder: str, name: str) -> None:
    (Path(folder) / name).touch(exist_ok=False)
