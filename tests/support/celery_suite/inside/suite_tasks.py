"""Tasks of the worker suite alone; their effects are rows, as those of ``smoke_tasks``."""

import time
from pathlib import Path
from typing import Any

from celery import shared_task
from smoke_tasks import record

PATIENCE_SECONDS = 200.0

_kept: list[bytearray] = []


@shared_task(name="suite.hold", bind=True, default_retry_delay=0)
def hold(self: Any, key: str) -> None:
    """Begin, and end when the file of this key is there."""
    record(self, key, "begun")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not Path("/data", key).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Nobody released {key}.")
        time.sleep(0.05)
    record(self, key, "ended")


@shared_task(name="suite.count", bind=True)
def count(self: Any, key: str) -> None:
    """Do no more than write that it ran."""
    record(self, key, "ended")


@shared_task(name="suite.keep", bind=True, max_retries=0)
def keep(self: Any, key: str, mib: int) -> None:
    """Take so much memory and never give it back, as a leak does."""
    record(self, key, "begun")
    _kept.extend(bytearray(b"x" * 2**20) for _ in range(mib))
    record(self, key, "ended")
