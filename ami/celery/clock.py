"""The two clocks of a machine: the wall clock, which may be stepped, and the monotonic one, which never is."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What beat asks for the time."""

    def now(self) -> datetime:
        """Return the wall clock's time, in UTC."""

    def monotonic(self) -> float:
        """Return seconds since some moment; they only grow."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
