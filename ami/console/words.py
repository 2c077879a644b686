"""Sizes and durations in words."""


def size(size_bytes: float | None) -> str:
    """Return a number of bytes as KiB, MiB or GiB."""
    if size_bytes is None:
        return "unknown"
    for unit in ("B", "KiB", "MiB"):
        if abs(size_bytes) < 1024:
            return f"{size_bytes:.0f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"


def duration(seconds: float | None) -> str:
    """Return a duration by its two largest units, such as ``3 min 5 s``."""
    if seconds is None:
        return "unknown"
    whole = int(max(0, seconds))
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, whole = divmod(whole, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
