"""Marks in the wheel at which a queue is swept of expired messages, whether or not it has consumers."""

import time

from ami.transports.objectstore.broker.declarations import QueueRecord
from ami.transports.objectstore.broker.wheel import Delayed, Wheel

#: The kind of a mark in the wheel; its payload is the queue's name.
SWEEP = "sweep"

#: A mark counts for a later message if it is at least so far ahead: the message must be stored before the sweep.
AHEAD_SECONDS, REMOTE_AHEAD_SECONDS = 0.05, 2.0


class ExpiryMarks:
    """Marks of this process. A sweep makes the next one, so one mark is enough for all that expires after it."""

    def __init__(self, wheel: Wheel, *, is_remote: bool) -> None:
        self._wheel = wheel
        self._ahead_seconds = REMOTE_AHEAD_SECONDS if is_remote else AHEAD_SECONDS
        self._last: dict[str, float] = {}
        #: The queues that this process has read for a sweep only.
        self.loaded: set[str] = set()

    def before(self, queue: str, record: QueueRecord, expires: float | None) -> None:
        """Called before a message is stored that expires then (epoch seconds)."""
        if expires is not None and not is_invisible(record):
            self.ensure(queue, expires)

    def after(self, queue: str, record: QueueRecord, expires: float | None) -> None:
        """Called after it was stored: the sweep may have been earlier."""
        if expires is not None and not is_invisible(record):
            self.ensure(queue, expires, 0.0)

    def ensure(self, queue: str, moment: float, ahead: float | None = None) -> None:
        """Have the queue swept then, unless it will be before then and in ``ahead`` seconds at the earliest."""
        ahead = self._ahead_seconds if ahead is None else ahead
        if not time.time() + ahead < self._last.get(queue, 0.0) <= moment:
            self.mark(queue, moment)
            self._last[queue] = moment

    def mark(self, queue: str, moment: float) -> None:
        """Have the queue swept then."""
        self._wheel.put([Delayed(f"{SWEEP}:{moment!r}:{queue}", moment, queue.encode(), SWEEP)])


def is_invisible(record: QueueRecord) -> bool:
    """Whether nobody can tell when its messages are removed: events and replies, which expire without a dead letter."""
    return record.is_transient and record.dead_letters is None
