"""Counts over time as bars of an SVG."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from ami.celery.shown_time import shown_time

WIDTH, HEIGHT = 5, 32


@dataclass(frozen=True)
class Bar:
    """One hour; the units are those of the SVG's view box."""

    x: int
    height: float
    at: datetime
    count: int


@dataclass(frozen=True)
class Bars:
    """Bars of equal width, oldest first; ``most`` is the count of the highest."""

    bars: tuple[Bar, ...]
    most: int
    total: int

    def drawn(self, label: str) -> SafeString:
        """Return the image, with what is counted in words. In one piece: a page has thousands of bars."""
        width = len(self.bars) * WIDTH
        rects = "".join(
            f'<rect x="{bar.x}" y="{HEIGHT - bar.height:g}" width="{WIDTH - 1}" height="{bar.height:g}">'
            f"<title>from {shown_time(bar.at)}: {bar.count}</title></rect>"
            for bar in self.bars
            if bar.count
        )
        return format_html(
            '<svg class="bars" viewBox="0 0 {0} {1}" width="{0}" height="{1}" preserveAspectRatio="none" role="img" '
            'aria-label="{2}: {3} in {4} hours, at most {5} in one">{6}</svg>',
            width,
            HEIGHT,
            label,
            self.total,
            len(self.bars),
            self.most,
            mark_safe(rects),  # noqa: S308 - numbers and times
        )


def by_hour(counts: Mapping[datetime, int], hours: int, now: datetime | None = None) -> Bars:
    """Return a bar for each of the last ``hours``; ``counts`` is by the hour's begin in UTC."""
    last = (now or datetime.now(UTC)).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    starts = [last - timedelta(hours=back) for back in range(hours - 1, -1, -1)]
    values = [counts.get(start, 0) for start in starts]
    most = max(values, default=0)
    bars = tuple(
        Bar(number * WIDTH, _height(count, most), start, count)
        for number, (start, count) in enumerate(zip(starts, values, strict=True))
    )
    return Bars(bars, most, sum(values))


def _height(count: int, most: int) -> float:
    """Return a bar's height: one unit at least where something was counted."""
    return round(max(1.0, HEIGHT * count / most), 1) if count else 0.0
