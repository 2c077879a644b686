"""A signal to this very process at the moment when something has come about."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupting(handler: Callable[[int, object], None], when: Callable[[], object]) -> Iterator[None]:
    """Run ``handler`` in the main thread, wherever it is, once ``when()`` is true; give up after 60 seconds."""
    before = signal.signal(signal.SIGUSR1, handler)
    over = threading.Event()

    def watch() -> None:
        deadline = time.monotonic() + 60
        while not when() and not over.wait(0.005) and time.monotonic() < deadline:
            pass
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGUSR1)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join(60)
        signal.signal(signal.SIGUSR1, before)
