"""When a command that ended is started again, and which processes of a group are frozen."""

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

#: A command that ends by itself is started again this often within these seconds, after these waits.
TIMES, WITHIN_SECONDS = 3, 600.0
WAITS_SECONDS = (0.5, 4.0, 15.0)
#: Exit status of a worker that asks to be started again (the governor's, sysexits' EX_TEMPFAIL): not counted.
PLANNED = os.EX_TEMPFAIL

LOOK_SECONDS = 1.0
#: A process is frozen after so many looks at which a signal had stopped it. A debugger's process is in another state.
STOPPED_LOOKS = 20
#: A worker is frozen after so many looks without a new pulse; its loop renews it every five seconds.
SILENT_LOOKS = 120
WITHOUT_BROKER = "without the broker"


class Restarts:
    """Counts the starts of one command after ends that nobody planned."""

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=TIMES)

    def wait_seconds(self, code: int, now: float) -> float | None:
        """Return the wait before the next start; None if there are none left."""
        if code == PLANNED:
            return WAITS_SECONDS[0]
        recent = sum(now - at < WITHIN_SECONDS for at in self._at)
        if recent == TIMES:
            return None
        self._at.append(now)
        return WAITS_SECONDS[recent]


class Freezes:
    """Finds processes that will not go on by themselves: those stopped by a signal, and workers without a pulse.

    It counts its own looks, at most one a second, not the clock: a supervisor that was stopped, or whose machine slept
    or was overloaded, has seen nothing meanwhile.
    """

    def __init__(self) -> None:
        self._next = 0.0
        self._stopped: dict[int, int] = {}
        self._silent: dict[int, tuple[float, int]] = {}

    def found(self, leaders: Mapping[int, Path | None]) -> Iterator[tuple[int, int, str]]:
        """Yield (leader, process, why) of the frozen ones; ``leaders``: the pulse file of the leader of each group."""
        if (now := time.monotonic()) < self._next:
            return
        self._next = now + LOOK_SECONDS
        stopped = dict(_stopped_processes(set(leaders)))
        self._stopped = {pid: self._stopped.get(pid, 0) + 1 for pid in stopped}
        self._silent = {pid: self._silence(pid, file) for pid, file in leaders.items() if file and pid not in stopped}
        for pid, looks in self._stopped.items():
            if looks == STOPPED_LOOKS:
                yield stopped[pid], pid, f"was stopped by a signal for {STOPPED_LOOKS} s"
        for pid, (_, looks) in self._silent.items():
            if looks == SILENT_LOOKS:
                yield pid, pid, f"has had no pulse for {SILENT_LOOKS} s"

    def _silence(self, pid: int, file: Path) -> tuple[float, int]:
        """Return when the pulse was, and at how many looks it was too old and the same; 0 before the first."""
        try:
            at, text = file.stat().st_mtime, file.read_text()
        except OSError:
            return 0.0, 0
        before, looks = self._silent.get(pid, (at, 0))
        is_silent = at == before and not text.startswith(WITHOUT_BROKER) and time.time() >= at
        return at, looks + 1 if is_silent else 0


def _stopped_processes(groups: set[int]) -> Iterator[tuple[int, int]]:
    """Yield (process, group) of those in the state T; nothing without /proc."""
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError, ValueError, IndexError):
            state, _, group = Path(f"/proc/{int(name)}/stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
            if state == "T" and int(group) in groups:
                yield int(name), int(group)
