"""Lets one request per web process wait for a service to start: a waiting request holds one of four threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ami.ml.cold_start import COLD_START_SECONDS
from ami.ml.services.probes import PROBE_SECONDS

_place = threading.BoundedSemaphore(1)


@contextmanager
def seconds() -> Iterator[float]:
    """Yield how long the block may wait: for a cold start, or only as long as beat if another request does so."""
    waits = _place.acquire(blocking=False)
    try:
        yield COLD_START_SECONDS if waits else PROBE_SECONDS
    finally:
        if waits:
            _place.release()
