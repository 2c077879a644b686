"""Keeps the figures of those who watch at hand: one thread of a web process asks for their version while polls come."""

import threading
import time
from contextlib import suppress

from django.db import Error, connections

from ami.celery import outages
from ami.telemetry.snapshots import shared

#: Figures are at most about so old. An operation, or a worker that changes, outdates them at once, and tasks that
#: change after `shared.TASKS_SECONDS`: progress is seen after 5 s (a worker's report), these, and the 2 s between two
#: polls.
FRESH_SECONDS = 6.5
#: It asks so often, and ends so long after the last poll.
EVERY_SECONDS, PATIENCE_SECONDS = shared.MEMO_SECONDS, 10.0


class Refresher:
    """At most one thread; it takes the next snapshot, too, when it is due, so that no poll waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted_at = 0.0
        self._is_running = False

    def want(self) -> None:
        """Go on, or begin; it neither waits nor asks."""
        self._wanted_at = time.monotonic()
        if self._is_running:
            return
        with self._lock:
            if self._is_running:
                return
            self._is_running = True
        threading.Thread(target=self._run, name="console-refresher", daemon=True).start()

    def _run(self) -> None:
        try:
            while time.monotonic() - self._wanted_at < PATIENCE_SECONDS:
                shared.current(FRESH_SECONDS)
                time.sleep(EVERY_SECONDS)
        except Error as error:  # A poll asks itself meanwhile, and shows what is wrong.
            outages.complain("Figures not refreshed", error)
        finally:
            with suppress(Error):
                connections.close_all()  # This thread's.
            self._is_running = False
