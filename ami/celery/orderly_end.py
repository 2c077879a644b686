"""Lets SIGTERM and SIGINT end a process between two pieces of its work, never inside one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OrderlyEnd:
    """Raises `SystemExit` in the main thread when the process was asked to end and no piece of work is under way.

    A handler that raises at once leaves what it interrupts half done: a message whose confirmation nobody reads any
    more, so that closing its connection waits for ever, or the lock of a database connection. Asking twice changes
    nothing; SIGKILL ends the process at once.
    """

    def __init__(self) -> None:
        self._is_asked = self._is_ending = False
        self._depth = 0

    def install(self) -> None:
        """Handle both signals in place of what handles them now; outside the main thread, where none arrives, don't."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._ask)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Do a piece of work to its end, or to the next `here`; pieces may stand inside each other.

        Raises:
            SystemExit: at the end, when the process was asked to end meanwhile.
        """
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.here()

    def here(self) -> None:
        """Show a place at which the work may end: where it waits, and nothing is half done.

        Raises:
            SystemExit: the process was asked to end.
        """
        if self._is_asked and not self._is_ending:
            raise SystemExit

    def begin(self) -> None:
        """Begin the end: what is done from now on, the signals interrupt no more."""
        self._is_ending = True

    def _ask(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        self._is_asked = True
        if not self._depth:
            self.here()
