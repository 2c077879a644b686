"""Admits large request bodies one at a time, so that one process never holds two of them in memory."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ami.main.api.errors import Busy
from ami.main.services.request_body import LARGE_BYTES, WAIT_SECONDS

__all__ = ["GATE", "LARGE_BYTES", "Gate"]

PLACES = 2
"""Large bodies that may occupy a thread: one in progress and one waiting; a web process has four threads."""


class Gate:
    """Admits one body at a time, lets one wait, and refuses the rest."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(PLACES)
        self._turn = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn and hold it for the block.

        Raises:
            Busy: 503; another body is already waiting, or the wait timed out.
        """
        if not self._places.acquire(blocking=False):
            raise Busy("Two large bodies are already in progress.")
        try:
            if not self._turn.acquire(timeout=WAIT_SECONDS):
                raise Busy(f"Another large body took longer than {WAIT_SECONDS:.0f} seconds.")
            try:
                yield
            finally:
                self._turn.release()
        finally:
            self._places.release()


GATE = Gate()
