"""A Celery application with nothing of this project but its transport; broker and results come from the environment."""

import os
import threading
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import worker_ready

from ami.transports import register

register()

app = Celery("plain", broker=os.environ["PLAIN_BROKER"], backend=f"file://{os.environ['PLAIN_FOLDER']}")
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 2},
    worker_cancel_long_running_tasks_on_connection_loss=True,
    worker_hijack_root_logger=False,
)


def note(line: str) -> None:
    """Add a line to what the tasks did."""
    with (Path(os.environ["PLAIN_FOLDER"]) / "diary").open("a") as diary:
        diary.write(f"{line}\n")


@app.task
def add(first: int, second: int) -> int:
    return first + second


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def third_time(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=1)
    return int(self.request.retries)


@app.task(bind=True)
def wait_for(self: Any, path: str, seconds: float = 60) -> bool:
    """Note the start and the process, then wait until a file appears."""
    note(f"started {self.request.id} {bool(self.request.delivery_info.get('redelivered'))} {os.getpid()}")
    deadline = time.monotonic() + seconds
    while not Path(path).exists() and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    note(f"ended {self.request.id}")
    return Path(path).exists()


@app.task(rate_limit="2/s")
def slowly(number: int) -> None:
    note(f"slowly {number} {time.time()}")


@app.task
def stamp(published: float) -> None:
    """Note when the task was published and when it started, in epoch seconds."""
    note(f"stamp {published} {time.time()}")


@worker_ready.connect
def _note_ready(**_: Any) -> None:
    note(f"ready {time.time()}")
