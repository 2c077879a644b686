"""``python -m tests.support.collecting SECONDS``: collect dead letters, as a worker's thread does, and die on the way.

With a second argument the process ends itself between a commit and the acknowledgement, after so many batches.
"""

import os
import signal
import sys
import time

import django

django.setup()

from ami.queues.letters import collector, rows  # noqa: E402
from ami.queues.letters.collector import Collector  # noqa: E402
from config import celery_app  # noqa: E402


def main(seconds: float, batches: int = 0) -> None:
    """Collect for a while; small batches, and no pauses between two looks."""
    rows.BATCH, collector.LOOK_SECONDS, collector.TRY_SECONDS = 7, 0.01, 0.05
    collector.LEASE_SECONDS, collector.RENEW_SECONDS = 0.2, 0.05
    write, written = rows.write, 0

    def write_and_die(*args: object) -> None:
        nonlocal written
        write(*args)  # type: ignore[arg-type]
        written += 1
        if written == batches:
            os.kill(os.getpid(), signal.SIGKILL)

    if batches:
        rows.write = write_and_die
    made, end = Collector(), time.monotonic() + seconds
    while time.monotonic() < end:
        made.turn(celery_app, f"collector {os.getpid()}")
        time.sleep(0.005)


if __name__ == "__main__":
    main(float(sys.argv[1]), *map(int, sys.argv[2:]))
