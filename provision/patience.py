"""How long to wait: as long as something moves, however slow the machine is."""

from __future__ import annotations

import os
import time
from pathlib import Path

from provision.guard import descendants

STANDSTILL_SECONDS = 180.0


class Patience:
    """A wait that is over when its signs have not changed for ``seconds``."""

    def __init__(self, seconds: float = STANDSTILL_SECONDS) -> None:
        self.seconds = seconds
        self._since = time.monotonic()
        self._signs: tuple[object, ...] = ()

    def is_over(self, *signs: object) -> bool:
        """Whether nothing has moved; ``signs`` is what would change if it did."""
        now = time.monotonic()
        if signs != self._signs:
            self._signs, self._since = signs, now
        return now - self._since > self.seconds


def processor_seconds(pid: int | None = None) -> int:
    """The whole seconds of processor time of a process and its descendants; 0 without /proc.

    Default: the descendants of this one alone. To look whether something moves takes processor time, too.
    """
    ticks = 0
    for each in descendants(os.getpid()) if pid is None else [pid, *descendants(pid)]:
        try:
            fields = Path(f"/proc/{each}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return int(ticks // os.sysconf("SC_CLK_TCK"))
