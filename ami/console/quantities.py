"""Figures as text: durations, sizes, counts and rates, short enough for a table's cell."""

from collections.abc import Iterable
from datetime import UTC, datetime

#: What stands where a figure could not be read.
UNSEEN = "–"


def duration(seconds: float | None) -> str:
    """Return seconds as ``40 ms``, ``2.5 s``, ``3 min``, ``1 h 20 min`` or ``4 d 2 h``."""
    if seconds is None:
        return UNSEEN
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds > 0 else "0 s"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    return _two(minutes // 60, "h", minutes % 60, "min") if minutes < 48 * 60 else _days(minutes // 60)


def _days(hours: int) -> str:
    return _two(hours // 24, "d", hours % 24, "h")


def _two(major: int, unit: str, minor: int, part: str) -> str:
    return f"{major} {unit} {minor} {part}" if minor else f"{major} {unit}"


def size(count: float | None) -> str:
    """Return bytes as ``512 KiB``, ``1.5 GiB``."""
    if count is None:
        return UNSEEN
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def number(value: float | str | None) -> str:
    """Return a count with thin spaces between thousands; of a broken number its first decimal.

    A text is what a template has for a key that is missing.
    """
    if value is None or isinstance(value, str):
        return UNSEEN
    text = f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:,.1f}"
    return text.replace(",", "\u2009")


def total(values: Iterable[int | None]) -> int | None:
    """Return the sum of the counts that could be read; None where none could."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def iso(epoch: float) -> str:
    """Return epoch seconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="seconds")
