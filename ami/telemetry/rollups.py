"""Makes minutes of the samples, hours of the minutes, and deletes what is old."""

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Avg, Max, Sum
from django.db.models.functions import TruncHour, TruncMinute
from django.utils import timezone

from ami.telemetry import counts, totals
from ami.telemetry.models import Sample, TaskHistogram

#: How long samples and histograms of each resolution (seconds) are kept.
KEPT = {5: timedelta(hours=48), 60: timedelta(days=30), 3600: timedelta(days=730)}
MINUTE_SECONDS, HOUR_SECONDS = 60.0, 3600.0
#: A sample is written so long after its time at the latest: a minute is summed up once, and not before it is whole.
WRITTEN = timedelta(seconds=75)
#: A statement of this thread has a second.
MOST_DELETED = 5000

LARGEST = ("waiting", "delayed", "memory_used_bytes", "memory_limit_bytes")
MEANS = ("running", "consumers", "children", "held")
SUMS = ("started", "ended", "failed")


class Rollups:
    """When the next minutes, hours and deletions are due; used in the sampler's thread."""

    def __init__(self) -> None:
        self._minutes_at = 0.0
        self._hours_at = time.monotonic() + 5 * MINUTE_SECONDS
        self._deleted_at = time.monotonic()

    def turn(self) -> None:
        now = time.monotonic()
        if now >= self._minutes_at:
            self._minutes_at = now + MINUTE_SECONDS
            roll(5, 60, timezone.now())
        if now >= self._hours_at:
            self._hours_at = now + HOUR_SECONDS
            roll(60, 3600, timezone.now())
            roll_histograms(timezone.now())
            totals.forget_old()
        if now >= self._deleted_at:
            self._deleted_at = now + (MINUTE_SECONDS if forget_old() else HOUR_SECONDS)


def roll(finer: int, coarser: int, now: datetime) -> None:
    """Sum up the finished minutes or hours of the last three, where that is not done; two statements."""
    trunc, whole = (TruncMinute, timedelta(minutes=1)) if coarser == 60 else (TruncHour, timedelta(hours=1))
    now -= WRITTEN
    until = now.replace(second=0, microsecond=0) if coarser == 60 else now.replace(minute=0, second=0, microsecond=0)
    figures = (
        {name: Max(name) for name in LARGEST} | {name: Avg(name) for name in MEANS} | {name: Sum(name) for name in SUMS}
    )
    rows = (
        Sample.objects.filter(resolution=finer, at__gte=until - 3 * whole, at__lt=until)
        .annotate(start=trunc("at"))
        .order_by()
        .values("kind", "name", "start")
        .annotate(last_version=Max("version"), **{f"rolled_{name}": each for name, each in figures.items()})
    )
    Sample.objects.bulk_create([_rolled(row, coarser, figures) for row in rows], ignore_conflicts=True)


def _rolled(row: Any, resolution: int, figures: Iterable[str]) -> Sample:
    return Sample(
        kind=row["kind"],
        name=row["name"],
        resolution=resolution,
        at=row["start"],
        version=row["last_version"],
        **{name: row[f"rolled_{name}"] for name in figures},
    )


def roll_histograms(now: datetime) -> None:
    """Sum up the last finished hour of each queue and task, unless it is there."""
    hour = (now - WRITTEN).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    if TaskHistogram.objects.filter(resolution=3600, at=hour).exists():
        return
    found: dict[tuple[str, str], list[float]] = {}
    for row in TaskHistogram.objects.filter(resolution=60, at__gte=hour, at__lt=hour + timedelta(hours=1)):
        counts.add(found.setdefault((row.queue, row.task), counts.empty()), counts.of_row(row))
    TaskHistogram.objects.bulk_create(
        totals.row(queue, task, hour, each, 3600) for (queue, task), each in found.items()
    )


def forget_old() -> bool:
    """Delete what is too old, at most ``MOST_DELETED`` rows of each kind; return whether there is more."""
    is_more = False
    for model in (Sample, TaskHistogram):
        for resolution, kept in KEPT.items():
            old = model._default_manager.filter(resolution=resolution, at__lt=timezone.now() - kept)
            keys = list(old.values_list("pk", flat=True)[:MOST_DELETED])
            if keys:
                model._default_manager.filter(pk__in=keys).delete()
            is_more = is_more or len(keys) == MOST_DELETED
    return is_more
