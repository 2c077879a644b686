"""Tasks that only the acceptance tests run; none of them is routed, so they land on the fallback queue."""

import os
import signal
import time

from celery import shared_task
from celery.exceptions import SoftTimeLimitExceeded

from ami.queues.publish import publish_successor
from ami.queues.slices import Slice


@shared_task
def succeed(_: object = None) -> None:
    """Do nothing."""


@shared_task(bind=True, max_retries=2)
def fail_after_retries(self: object, countdown: float = 1) -> None:
    """Fail, also after two retries."""
    try:
        raise ValueError("always")
    except ValueError as error:
        raise self.retry(exc=error, countdown=countdown) from error  # type: ignore[attr-defined]


@shared_task(max_retries=0)
def fail() -> None:
    """Fail at once."""
    raise ValueError("at once")


@shared_task(max_retries=1, default_retry_delay=0)
def run_out_of_memory() -> None:
    """Raise a MemoryError."""
    raise MemoryError("no more")


@shared_task(max_retries=1, default_retry_delay=0, soft_time_limit=1, time_limit=2)
def run_too_long() -> None:
    """Sleep past the hard time limit, deaf to the soft one."""
    try:
        time.sleep(60)
    except SoftTimeLimitExceeded:
        time.sleep(60)


@shared_task(max_retries=1, default_retry_delay=0)
def lose_the_child() -> None:
    """Kill the own process."""
    os.kill(os.getpid(), signal.SIGKILL)


@shared_task(bind=True, max_retries=1)
def retry_once(self: object, countdown: float = 0) -> None:
    """Retry once, then succeed."""
    if self.request.retries == 0:  # type: ignore[attr-defined]
        raise self.retry(countdown=countdown)  # type: ignore[attr-defined]


@shared_task
def hold(seconds: float) -> None:
    """Hold a slot."""
    time.sleep(seconds)


@shared_task(bind=True)
def work_in_slices(self: object, steps: int) -> None:
    """Do so many steps of ten milliseconds, in slices."""
    piece = Slice(self)
    while steps and not piece.over():
        time.sleep(0.01)
        steps -= 1
    if steps:
        publish_successor(self, steps=steps)
