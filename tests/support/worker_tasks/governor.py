"""Tasks that take memory, and leave one row per message where the governor's tests count."""

import os
import time
from pathlib import Path
from typing import Any

from celery import shared_task
from celery.signals import celeryd_init
from django.db import connection

_kept: list[bytearray] = []
MB = 1000**2

TABLE = """
CREATE TABLE IF NOT EXISTS governor_effect (key TEXT PRIMARY KEY, runs INTEGER NOT NULL, at DOUBLE PRECISION NOT NULL)
"""


@celeryd_init.connect
def enter_group(**_: Any) -> None:
    """Move this worker to the memory cgroup of its test, if it has one: its governor and its children find it there."""
    if folder := os.environ.get("ANTENNA_TEST_CGROUP"):
        (Path(folder) / "cgroup.procs").write_text(str(os.getpid()))


def effects() -> dict[str, int]:
    """How often each key's task got to its end."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT key, runs FROM governor_effect")
        return dict(cursor.fetchall())


def _apply(key: str) -> None:
    """The effect, once, however often the message is delivered; deliveries beyond the first are counted."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO governor_effect VALUES (%s, 1, %s) "
            "ON CONFLICT (key) DO UPDATE SET runs = governor_effect.runs + 1",
            [key, time.time()],
        )


def _taken(mb: int) -> bytearray:
    memory = bytearray(mb * MB)
    memory[::4096] = b"x" * len(range(0, mb * MB, 4096))  # Touched, or the kernel gives nothing.
    return memory


@shared_task(max_retries=5, default_retry_delay=0)
def work(key: str, seconds: float = 0.0) -> None:
    """Leave an effect after a while."""
    time.sleep(seconds)
    _apply(key)


@shared_task
def linger(key: str, seconds: float) -> None:
    """Leave an effect at the beginning, and one at the end."""
    _apply(f"{key} began")
    time.sleep(seconds)
    _apply(key)


@shared_task
def quick(seconds: float = 0.0) -> None:
    """Leave no effect."""
    time.sleep(seconds)


@shared_task(max_retries=5, default_retry_delay=0)
def keep(key: str, mb: int) -> None:
    """Keep memory in this process for good, as a leak or a cache does, and leave an effect."""
    _kept.append(_taken(mb))
    time.sleep(0.05)
    _apply(key)


@shared_task(max_retries=1, default_retry_delay=0)
def want(mb: int, mb_per_second: float = 0) -> None:
    """Take so much memory, a hundredth of a second's worth at a time, or all at once."""
    if not mb_per_second:
        _taken(mb)
        return
    taken, step = [], max(1, int(mb_per_second / 50))
    for _ in range(0, mb, step):
        taken.append(_taken(step))
        time.sleep(0.02)


@shared_task
def hoard(mb: int, seconds: float = 0.5) -> None:
    """Keep memory in this process for good, and touch nothing else."""
    _kept.append(_taken(mb))
    time.sleep(seconds)


@shared_task
def burst(mb: int, seconds: float) -> None:
    """Take memory for a while, and give it back."""
    memory = _taken(mb)
    time.sleep(seconds)
    del memory
