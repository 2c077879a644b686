"""The tasks of the tests in containers. Each effect is a row in the database, so that nothing counts what was lost."""

import os
import time
from typing import Any

from celery import shared_task
from django.db import connection

TABLE = "smoke_effects"


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
