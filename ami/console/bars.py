"""Counts over time as bars of an SVG."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

WIDTH, HEIGHT = 5, 32


@dataclass(frozen=True)
class Bar:
    """One hour; the units are those of the SVG's view box."""

    x: int
    y: float
    height: float
    at: datetime
    count: int


@dataclass(frozen=True)
class Bars:
    """Bars of equal width, oldest first; ``most`` is the count of the highest."""

    bars: tuple[Bar, ...]
    most: int
    total: int

    @property
    def width(self) -> int:
        return len(self.bars) * WIDTH

    @property
    def height(self) -> int:
        return HEIGHT

    @property
    def bar_width(self) -> int:
        return WIDTH - 1


def by_hour(counts: Mapping[datetime, int], hours: int, now: datetime | None = None) -> Bars:
    """Return a bar for each of the last ``hours``; ``counts`` is by the hour's begin in UTC."""
    last = (now or datetime.now(UTC)).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    starts = [last - timedelta(hours=back) for back in range(hours - 1, -1, -1)]
    values = [counts.get(start, 0) for start in starts]
    most = max(values, default=0)
    bars = tuple(
        Bar(number * WIDTH, HEIGHT - _height(count, most), _height(count, most), start, count)
        for number, (start, count) in enumerate(zip(starts, values, strict=True))
    )
    return Bars(bars, most, sum(values))


def _height(count: int, most: int) -> float:
    """Return a bar's height: one unit at least where something was counted."""
    return round(max(1.0, HEIGHT * count / most), 1) if count else 0.0
