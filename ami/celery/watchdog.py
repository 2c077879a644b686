"""Ends a process whose work stands still while the process itself lives on, so that its restart policy acts."""

import os
import sys
import threading
from collections.abc import Callable

from celery.utils.log import get_logger

logger = get_logger(__name__)

PATIENCE_VARIABLE = "ANTENNA_BEAT_PATIENCE_SECONDS"
PATIENCE_SECONDS = 300

#: The exit code of a process that was ended for standing still: sysexits' EX_SOFTWARE.
EXIT_CODE = os.EX_SOFTWARE

LOOK_SECONDS = 1.0
TELL_SECONDS = 2.0


def patience_seconds() -> int:
    """Return how long beat may stand still, in seconds; 0 switches the watchdog off.

    Raises:
        SystemExit: the setting is no whole number from 0 to a day.
    """
    raw = os.environ.get("ANTENNA_BEAT_PATIENCE_SECONDS", "").strip() or str(PATIENCE_SECONDS)
    if not (raw.isascii() and raw.isdigit() and int(raw) <= 86_400):
        raise SystemExit(
            f"Configuration refused: {PATIENCE_VARIABLE} is '{raw}'; it must be a whole number from 0 (off) to 86400 "
            f"(default {PATIENCE_SECONDS})."
        )
    return int(raw)


def end() -> None:
    """End this process at once: a frozen one cannot be asked to stop."""
    os._exit(EXIT_CODE)


class Watchdog:
    """Counts seconds without a sign of life, beyond those that were announced, and calls ``end`` after ``patience``.

    It counts its own looks, one a second, not the clock: a process that was stopped or a machine that slept wakes up
    with its patience unspent. ``patience`` 0 makes it look never.
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
        """Look no more."""
        self._stopped.set()

    def alive(self, rest_seconds: float = 0) -> None:
        """Show a sign of life, and for how long the next one is not to be expected."""
        self._left = self.patience + max(0.0, rest_seconds)

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            self._left -= LOOK_SECONDS
            if self._left <= 0:
                self._tell()
                self._end()
                return

    def _tell(self) -> None:
        """Log one line, from a thread that may hang: what froze may hold the log's own lock."""
        line = "No tick has finished for %s s; it stands still at %s. Ending with code %s, to be started again."
        arguments = (line, self.patience, self._where(), EXIT_CODE)
        teller = threading.Thread(target=logger.critical, args=arguments, name="watchdog-log", daemon=True)
        teller.start()
        teller.join(TELL_SECONDS)

    def _where(self) -> str:
        frame = sys._current_frames().get(self._watched or 0)
        return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})" if frame else "an unknown place"
