"""The one form in which people read a time: ``2026-11-28 12:03:04 UTC``."""

from datetime import UTC, datetime

from django.utils import timezone


def shown_time(at: datetime | float | str | None, none: str = "") -> str:
    """Return a time, epoch seconds or ISO 8601, in Django's current zone (TIME_ZONE unless a request has another)."""
    if at is None:
        return none
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    if not isinstance(at, datetime):
        at = datetime.fromtimestamp(at, UTC)
    return f"{timezone.localtime(at):%Y-%m-%d %H:%M:%S %Z}"
