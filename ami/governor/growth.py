"""How fast running children grow, so that the next check comes before one of them reaches its limit."""

from collections.abc import Iterable

from ami.governor.policy import SHORTEST_CHECK_SECONDS
from ami.governor.reclaim import Child


class Growth:
    """The last two sizes of each running child."""

    def __init__(self) -> None:
        #: By pid: time of the last check (monotonic seconds), KiB then, and growth in KiB a second before it.
        self._sizes: dict[int, tuple[float, int, float]] = {}

    def record(self, children: Iterable[Child], now: float) -> None:
        """Keep the sizes of this check, and drop children that are not in it."""
        self._sizes = {child.pid: self._compared(child, now) for child in children}

    def next_check_seconds(self, hard_kib: int, interval_seconds: float) -> float:
        """Return when to check again: sooner if the fastest child would reach ``hard_kib`` (0: no limit) before."""
        growing = [(kib, rate) for _, kib, rate in self._sizes.values() if rate > 0 and hard_kib]
        soonest = min(((hard_kib - kib) / rate for kib, rate in growing), default=interval_seconds)
        return max(SHORTEST_CHECK_SECONDS, min(soonest, interval_seconds))

    def _compared(self, child: Child, now: float) -> tuple[float, int, float]:
        at, kib, _ = self._sizes.get(child.pid, (now, child.pss_kib, 0.0))
        return now, child.pss_kib, (child.pss_kib - kib) / max(now - at, 0.01)
