"""How fast running children grow, so that the next look comes before one of them reaches its limit."""

from collections.abc import Iterable

from ami.governor.policy import SHORTEST_LOOK_SECONDS
from ami.governor.reclaim import Child


class Growth:
    """The last two sizes of each running child."""

    def __init__(self) -> None:
        #: By pid: when it was seen (monotonic seconds), its KiB then, and KiB a second since it was seen before.
        self._seen: dict[int, tuple[float, int, float]] = {}

    def seen(self, children: Iterable[Child], now: float) -> None:
        """Remember the children of this look, and forget all others."""
        self._seen = {child.pid: self._compared(child, now) for child in children}

    def next_look_seconds(self, hard_kib: int, interval_seconds: float) -> float:
        """Return when to look again: sooner if the fastest would reach ``hard_kib`` (0: no limit) before."""
        growing = [(kib, rate) for _, kib, rate in self._seen.values() if rate > 0 and hard_kib]
        soonest = min(((hard_kib - kib) / rate for kib, rate in growing), default=interval_seconds)
        return max(SHORTEST_LOOK_SECONDS, min(soonest, interval_seconds))

    def _compared(self, child: Child, now: float) -> tuple[float, int, float]:
        at, kib, _ = self._seen.get(child.pid, (now, child.pss_kib, 0.0))
        return now, child.pss_kib, (child.pss_kib - kib) / max(now - at, 0.01)
