"""Helpers of the governor's acceptance tests: quick settings, and a container filled to a given percentage."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.cgroups import MIB, Ballast, Group
from tests.support.place import Process

T = "tests.support.worker_tasks.governor"
HELD, RELEASED = "MEMORY THROTTLE ACTIVE", "MEMORY THROTTLE RELEASED"
QUICK = {
    "ANTENNA_EXTRA_TASKS": T,
    "ANTENNA_FALLBACK_CONCURRENCY": "4",
    "MEMORY_CHECK_INTERVAL": "0.2",
    "MEMORY_MIN_HOLD_SECONDS": "0",
}


def fill(group: Group, ballast: Ballast, percent: float) -> None:
    """Make the group as full as that, whatever else is in it."""
    ballast.hold(0)
    ballast.hold(int(group.limit_bytes / MIB * percent / 100) - group.anonymous_mib)


@contextmanager
def lateness() -> Iterator[list[float]]:
    """How many seconds this process was late in all, one entry for each short wait: what a busy machine adds to every
    reaction.
    """
    late: list[float] = []
    over = threading.Event()

    def watch() -> None:
        began = time.monotonic()
        while not over.wait(0.02):
            now = time.monotonic()
            late.append(now - began - 0.02)
            began = now

    thread = threading.Thread(target=watch, name="lateness", daemon=True)
    thread.start()
    try:
        yield late
    finally:
        over.set()
        thread.join()


def said(worker: Process, text: str) -> int:
    """How often the worker has logged it."""
    return worker.text.count(text)
