"""The gate that large request bodies pass one at a time, so that one process never holds two of them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ami.main.api.errors import Busy
from ami.main.services.request_body import LARGE_BYTES, WAIT_SECONDS

__all__ = ["GATE", "LARGE_BYTES", "Gate"]

PLACES = 2
"""How many large bodies occupy a thread: one that is worked on and one that waits; web has four threads."""


class Gate:
    """Lets one in at a time, keeps one waiting, and turns the rest away."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(PLACES)
        self._turn = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn and keep it inside the block.

        Raises:
            Busy: 503; another body waits already, or the turn did not come in time.
        """
        if not self._places.acquire(blocking=False):
            raise Busy("Two large bodies are here already.")
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
