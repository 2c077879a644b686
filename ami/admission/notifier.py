"""Wakes the dispatcher after a commit, from a thread of the caller's process: the caller never waits for the broker.

Without it, or without the broker, the dispatcher looks each second.
"""

import os
import threading
import time
from contextlib import suppress
from typing import Any

from celery.utils.log import get_logger

logger = get_logger(__name__)

#: A process notifies at most so often: a dispatcher that finds calls looks again by itself.
SPACING_SECONDS = 0.05
#: Without anything to do the thread ends.
IDLE_SECONDS = 20.0
CONNECT_SECONDS = 2.0
COMMAND = "antenna_calls_staged"
_NO_RETRY = {"max_retries": 0, "interval_start": 0}

_lock = threading.Lock()
_due = threading.Event()
_thread: threading.Thread | None = None
_pid = 0


def notify(app: Any) -> None:
    """Have the dispatchers woken soon; returns at once."""
    global _lock, _due, _thread, _pid
    if _pid != os.getpid():  # Forked: the thread is the parent's.
        _lock, _due, _thread, _pid = threading.Lock(), threading.Event(), None, os.getpid()
    with _lock:
        _due.set()
        if _thread is None:
            _thread = threading.Thread(target=_run, args=(app,), name="calls staged", daemon=True)
            _thread.start()


def _run(app: Any) -> None:
    """Broadcast what is due, over one connection while there is something to do."""
    connection: Any = None
    while _due.wait(IDLE_SECONDS) or not _is_over():
        _due.clear()
        try:
            if connection is None:
                connection = app.connection_for_write(connect_timeout=CONNECT_SECONDS)
                connection.ensure_connection(max_retries=1, timeout=CONNECT_SECONDS)
            app.control.broadcast(COMMAND, connection=connection, retry_policy=_NO_RETRY)
        except Exception as error:  # Any of the broker's client; the dispatcher looks by itself.
            logger.debug("Dispatcher not woken: %r", error)
            _close(connection)
            connection = None
        time.sleep(SPACING_SECONDS)
    _close(connection)


def _close(connection: Any) -> None:
    if connection is not None:
        with suppress(Exception):
            connection.release()


def _is_over() -> bool:
    """Let the thread end, unless there is something to do after all."""
    global _thread
    with _lock:
        if _due.is_set():
            return False
        _thread = None
        return True
