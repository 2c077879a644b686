"""What the acceptance tests of the governor share: quick settings, and a container that is as full as they want it."""

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


def said(worker: Process, text: str) -> int:
    """How often the worker has logged it."""
    return worker.text.count(text)
