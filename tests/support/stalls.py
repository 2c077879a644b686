"""When the machine itself stood still: the reference that a timed promise is held against."""

import threading
import time
from types import TracebackType
from typing import Any

from ami.celery.declaration import depth

#: A round trip to the broker and one to the database take a few milliseconds together; longer than this, and it is
#: the machine that is slow, not a queue.
STALL_SECONDS = 0.25
LOOK_SECONDS = 0.05


class Stalls:
    """Asks the broker and the database for next to nothing, again and again, and keeps when an answer took long.

    Neither goes through a worker or waits behind a message, so what is slow here is slow for everybody: a neighbour on
    a shared machine, a disk that flushes. A test that promises milliseconds leaves out what fell into such a moment,
    and says how much that was.
    """

    def __init__(self, place: Any, queue: str) -> None:
        self.place, self.queue = place, queue
        self.stalls: list[tuple[float, float]] = []
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)

    def __enter__(self) -> "Stalls":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(30)

    def spared(self, started_at: float, waited_seconds: float) -> bool:
        """Whether no stall fell between the moment a task was due and the moment it started (epoch seconds)."""
        return not any(begin <= started_at and end >= started_at - waited_seconds for begin, end in self.stalls)

    def _watch(self) -> None:
        from django.db import connection

        with self.place.app.connection_for_read() as broker, broker.channel() as channel:
            expected = time.time()
            while not self._over.is_set():
                depth(channel, self.queue)
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1")
                self.looks += 1
                now = time.time()
                if now - expected > STALL_SECONDS:
                    self.stalls.append((expected, now))
                expected = now + LOOK_SECONDS
                self._over.wait(LOOK_SECONDS)
        connection.close()
