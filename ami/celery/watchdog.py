"""Ends a process that is alive but frozen, so that its restart policy starts it again."""

import os
import sys
import threading
from collections.abc import Callable

from celery.utils.log import get_logger

logger = get_logger(__name__)

#: The exit code of a frozen process: sysexits' EX_SOFTWARE.
EXIT_CODE = os.EX_SOFTWARE

CHECK_SECONDS = 1.0
LOG_SECONDS = 2.0


def end() -> None:
    """End this process at once: a frozen one handles no signal."""
    os._exit(EXIT_CODE)


class Watchdog:
    """Counts seconds without a sign of life, beyond those that were announced, and calls ``end`` after ``patience``.

    It counts its own checks, one a second, not the clock: a process that was stopped, or whose machine slept, resumes
    with its patience unspent. ``patience`` 0 switches it off.
    """

    def __init__(self, patience: int, end: Callable[[], None] = end) -> None:
        self.patience = patience
        self._end = end
        self._left = float(patience)
        self._stopped = threading.Event()
        self._watched = threading.main_thread().ident

    def start(self) -> None:
        """Watch the calling thread from a thread of its own, which never keeps the process from ending."""
        if self.patience:
            self._watched = threading.get_ident()
            threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def alive(self, rest_seconds: float = 0) -> None:
        """Show a sign of life; the next one is not expected for ``rest_seconds``."""
        self._left = self.patience + max(0.0, rest_seconds)

    def _watch(self) -> None:
        while not self._stopped.wait(CHECK_SECONDS):
            self._left -= CHECK_SECONDS
            if self._left <= 0:
                self._log()
                self._end()
                return

    def _log(self) -> None:
        """Log one line, from a thread that may hang: the frozen one may hold the log's lock."""
        line = "No tick has finished for %s s; frozen at %s. Ending with code %s, to be restarted."
        arguments = (line, self.patience, self._where(), EXIT_CODE)
        writer = threading.Thread(target=logger.critical, args=arguments, name="watchdog-log", daemon=True)
        writer.start()
        writer.join(LOG_SECONDS)

    def _where(self) -> str:
        frame = sys._current_frames().get(self._watched or 0)
        return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})" if frame else "an unknown place"
