"""Figures as short as a narrow terminal needs them."""

from ami.console.top.cells import Glyphs


def short(seconds: float | None, glyphs: Glyphs) -> str:
    """Return seconds as ``40ms``, ``2.5s``, ``3m``, ``1h20`` or ``4d``."""
    if seconds is None:
        return glyphs.unseen
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds > 0 else "0s"
    if seconds < 60:
        return f"{round(seconds, 1):g}s" if seconds < 10 else f"{seconds:.0f}s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes}m"
    if minutes < 48 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}"
    return f"{minutes // 1440}d"


def count(value: float | None, glyphs: Glyphs) -> str:
    """Return a count in at most seven characters: ``200,000``, ``1.2M``."""
    if value is None:
        return glyphs.unseen
    return f"{value:,.0f}" if value < 1_000_000 else f"{value / 1_000_000:.1f}M"


def rate(value: float | None, glyphs: Glyphs) -> str:
    """Return a number of tasks a minute in at most four characters."""
    if value is None:
        return glyphs.unseen
    return f"{value:.0f}" if value < 10_000 else f"{value / 1000:.0f}k"
