"""Which beats run, when they last ticked, and when the next tick is due."""

import time
from datetime import datetime
from typing import Any

from django.db.models import Subquery
from django.db.models.functions import Now
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from ami.queues.due import due_at, whole_second
from ami.queues.models import Beat, TickClaim
from ami.telemetry.snapshots.shape import BeatFigures

#: The next tick is read from all entries again after so long, and when it is due.
NEXT_SECONDS = 40.0

#: Until when it holds by this process's clock, and what it is.
_next: tuple[float, datetime | None] | None = None
#: The same of the entries with their schedules.
_entries: tuple[float, list[PeriodicTask]] | None = None


def beats(at: datetime | None) -> tuple[datetime, tuple[BeatFigures, ...]]:
    """Return the database's time, which is ``at`` where that is known, and every beat.

    Three statements, however many entries there are; two while these are known, and one while the next tick is, or
    without a beat.
    """
    last_tick = Subquery(TickClaim.objects.exclude(claimed_at=None).order_by("-claimed_at").values("claimed_at")[:1])
    rows: list[Any] = list(Beat.objects.annotate(now=Now(), last_tick=last_tick).order_by("name"))
    now: datetime = at or (rows[0].now if rows else timezone.now())
    next_tick = whole_second(_next_due(now)) if rows else None
    return now, tuple(
        BeatFigures(
            name=row.name,
            seen_seconds=round((now - row.seen_at).total_seconds(), 1),
            last_tick_at=row.last_tick.timestamp() if row.last_tick else None,
            next_tick_at=next_tick.timestamp() if next_tick else None,
        )
        for row in rows
    )


def forget() -> None:
    """Read the next tick from the entries, which have changed."""
    global _next, _entries
    _next = _entries = None


def _next_due(now: datetime) -> datetime | None:
    global _next
    known = _next
    if known and time.monotonic() < known[0] and (known[1] is None or known[1] > now):
        return known[1]
    claims = TickClaim.objects.in_bulk()
    dues = [due for entry in _enabled() if (due := due_at(entry, claims.get(entry.pk), now)) is not None]
    found = min(dues, default=None)
    _next = time.monotonic() + NEXT_SECONDS, found
    return found


def _enabled() -> list[PeriodicTask]:
    """Return the entries that are enabled; a tick changes their claims alone, so they are read as seldom."""
    global _entries
    if _entries is None or time.monotonic() >= _entries[0]:
        rows = PeriodicTask.objects.enabled().select_related("interval", "crontab", "solar", "clocked")
        _entries = time.monotonic() + NEXT_SECONDS, list(rows)
    return _entries[1]
