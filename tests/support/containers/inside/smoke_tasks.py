"""The tasks of the tests in containers. Each effect is a row in the database, so that nothing counts what was lost."""

import os
import time
from pathlib import Path
from typing import Any

from celery import shared_task
from django.db import connection

TABLE = "smoke_effects"
PATIENCE_SECONDS = 200.0


def record(task: Any, key: str, what: str) -> None:
    """Write that ``what`` happened to ``key``; the table is made by whoever comes first."""
    delivery = task.request.delivery_info or {}
    row = (key, what, task.request.hostname, os.getpid(), bool(delivery.get("redelivered")))
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {TABLE} (key, what, node, pid, redelivered) VALUES (%s, %s, %s, %s, %s)", row)  # noqa: S608


@shared_task(name="smoke.effect", bind=True)
def effect(self: Any, key: str, seconds: float = 0.0) -> None:
    """Begin, take so long, and end; both are written."""
    record(self, key, "begun")
    time.sleep(seconds)
    record(self, key, "ended")


@shared_task(name="smoke.grow", bind=True, max_retries=1, default_retry_delay=1)
def grow(self: Any, key: str, mib: int, seconds: float = 0.0) -> None:
    """Take so much memory, a MiB at a time, keep it for so long, and end."""
    record(self, key, "begun")
    kept = []
    for _ in range(mib):
        kept.append(bytearray(b"x" * 2**20))
        time.sleep(0.001)
    time.sleep(seconds)
    record(self, key, "ended")


@shared_task(name="smoke.hold", bind=True, default_retry_delay=0)
def hold(self: Any, key: str) -> None:
    """Begin, and end when the file of this key is there."""
    record(self, key, "begun")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not Path("/data", key).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{key} was not released.")
        time.sleep(0.05)
    record(self, key, "ended")
