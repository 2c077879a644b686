"""How busy the processors are: the container's share of its quota, or the host's (kernel: filesystems/proc.rst)."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ami.governor.probes.cgroup import Cgroup
from ami.governor.probes.cpu_quota import Use, uses

#: Over how many seconds the percentage is a mean, so that a spike holds nothing; unknown until two thirds were seen.
WINDOW_SECONDS = 15.0
LEAST_SECONDS = 10.0


@dataclass(frozen=True)
class Reading:
    """Idle and all ticks of the host's processors, and each quota's use, at a moment in monotonic seconds."""

    at: float
    idle: int
    total: int
    uses: Mapping[Path, Use]


class Cpu:
    """Processor time in the last 15 s, or between two calls that are further apart."""

    def __init__(
        self, root: Path = Path("/"), cgroup: Cgroup | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._clock = root / "proc/stat", clock
        self._cgroup = cgroup or Cgroup(root, controller="cpu")
        self._readings: deque[Reading] = deque()

    def percent(self) -> tuple[str, float] | None:
        """Return ``container`` or ``host``, whichever is busier, and its mean share, 0 to 100; None in the first 10 s.

        The container's is its time in percent of its quota, and of the quotas above it; without a quota the host's
        counts alone. Waiting for a disk is idle; time stolen by the hypervisor is busy: this machine cannot use it.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file has an unexpected content.
        """
        try:
            now = self._read()
        except (OSError, ValueError):
            self._readings.clear()
            raise
        while len(self._readings) > 1 and now.at - self._readings[1].at >= WINDOW_SECONDS:
            self._readings.popleft()
        self._readings.append(now)
        first = self._readings[0]
        if now.at - first.at < LEAST_SECONDS or now.total <= first.total:
            return None
        # iowait may run backwards, which would show more than 100 or less than 0.
        host = min(100.0, max(0.0, 100 - 100 * (now.idle - first.idle) / (now.total - first.total)))
        container = max((_share(first, now, folder) for folder in now.uses if folder in first.uses), default=-1.0)
        return ("host", host) if container < host else ("container", container)

    def _read(self) -> Reading:
        idle, total = self._ticks()
        return Reading(self._clock(), idle, total, uses(self._cgroup))

    def _ticks(self) -> tuple[int, int]:
        with self._path.open() as file:
            line = file.readline()
        name, *columns = line.split()[:9] or [""]
        if name != "cpu" or len(columns) < 5:
            raise ValueError(f"{self._path} begins with {line[:80]!r}, not with the line of all processors")
        # user nice system idle iowait irq softirq steal; the guests' two columns after them are in user and nice.
        ticks = [int(column) for column in columns]
        return ticks[3] + ticks[4], sum(ticks)


def _share(first: Reading, now: Reading, folder: Path) -> float:
    used = now.uses[folder].seconds - first.uses[folder].seconds
    # The kernel lets a cgroup overdraw one period.
    return min(100.0, max(0.0, 100 * used / (now.at - first.at) / now.uses[folder].cores))
