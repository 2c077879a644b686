"""Lets a worker and beat look for dead workers, and do what one process does for all; beat, too, since the only worker
may be the dead one.

In a thread of its own: a look takes seconds, in which a worker goes on with its beat and with the wishes.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from celery.utils.log import get_logger

from ami.celery import worker_records

logger = get_logger(__name__)

TURN_SECONDS = 1.0
#: A process that ends waits so long for the look that it is in.
END_SECONDS = 3.0


class SweepThread:
    """Takes part in the sweep under ``name``; it never keeps the process from ending.

    ``is_needed`` is asked every second: False costs no statement.
    """

    def __init__(self, app: Any, name: str, is_needed: Callable[[], bool] = lambda: True) -> None:
        self._app, self._name, self._is_needed = app, name, is_needed
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start, if there is a sweep to take part in."""
        if worker_records.sweeper() is not None:
            self._thread = threading.Thread(target=self._run, name="sweep", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and let other processes take the duties over at once; a look that takes longer is left alone."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(END_SECONDS)

    def _run(self) -> None:
        while not self._stopped.wait(TURN_SECONDS):
            self._take(self._sweep)
            for duty in worker_records.duties():
                self._take(partial(duty.turn, self._app, self._name))
        for duty in worker_records.duties():
            try:
                duty.end(self._name)
            except Exception as error:
                logger.info("Duty not handed over: %r", error)

    def _sweep(self) -> None:
        if (sweeper := worker_records.sweeper()) is not None:
            sweeper.turn(self._app, self._name, is_needed=self._is_needed())

    @staticmethod
    def _take(turn: Callable[[], None]) -> None:
        try:
            turn()
        except Exception:  # One duty never keeps the others from theirs.
            logger.exception("Sweep failed; trying again")
