"""What the last minutes were like, for a snapshot: waits and runs, rates, and what waited."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import OuterRef, Q, Subquery

from ami.telemetry import counts
from ami.telemetry.models import CountedTotals, Sample, TaskHistogram
from ami.telemetry.snapshots.waiting_age import Seen

WINDOW = timedelta(minutes=5)
HOUR = timedelta(hours=1)
MINUTES = 60
#: Raw samples are written every 20 s.
RAW = timedelta(seconds=150)
RATE_SECONDS = 60.0


@dataclass
class Recent:
    """One queue's. ``counts`` are of the last five minutes; ``uncounted_starts`` at most since the last sample."""

    counts: list[float] = field(default_factory=counts.empty)
    seen: list[Seen] = field(default_factory=list)
    history: list[int | None] = field(default_factory=lambda: [None] * MINUTES)
    per_minute: dict[str, float] = field(default_factory=dict)
    uncounted_starts: float = 0.0


def counted() -> Subquery:
    """Return what of a worker's totals the sampler has counted, as an annotation of its row."""
    return Subquery(CountedTotals.objects.filter(pk=OuterRef("connection_name")).values("totals"))


def read(now: datetime, workers: Iterable[Any]) -> dict[str, Recent]:
    """Return each queue's, with what ``workers`` (rows with `counted`) have reported since; two statements."""
    found: dict[str, Recent] = defaultdict(Recent)
    for row in TaskHistogram.objects.filter(resolution=60, at__gte=now - WINDOW):
        counts.add(found[row.queue].counts, counts.of_row(row))
    _add_uncounted(found, workers)
    _add_samples(found, now)
    return found


def _add_uncounted(found: dict[str, Recent], workers: Iterable[Any]) -> None:
    """Add what workers have reported since the sampler last counted."""
    for row in workers:
        for queue, _, delta in counts.new_counts(row.totals, row.counted) if row.totals else ():
            counts.add(found[queue].counts, delta)
            found[queue].uncounted_starts += delta[0]


def _add_samples(found: dict[str, Recent], now: datetime) -> None:
    names = ("name", "resolution", "at", "waiting", "started", "ended", "failed")
    wanted = Q(resolution=60, at__gt=now - HOUR) | Q(resolution=5, at__gt=now - RAW)
    rows = list(Sample.objects.filter(wanted, kind=Sample.Kind.QUEUE).order_by("at").values_list(*names))
    raw_since = min((row[2] for row in rows if row[1] == 5), default=now)
    newest = max((row[2] for row in rows if row[1] == 5), default=now)
    rated = newest - timedelta(seconds=RATE_SECONDS)
    for name, resolution, at, waiting, started, ended, failed in rows:
        recent = found[name]
        if resolution == 60:
            place = MINUTES - 1 - int((now - at).total_seconds() // 60)
            if 0 <= place < MINUTES:
                recent.history[place] = waiting
        if waiting is not None and (resolution == 5 or at + timedelta(seconds=60) <= raw_since):
            recent.seen.append(Seen(at.timestamp(), waiting, started or 0, 60.0 if resolution == 60 else 0.0))
        if resolution == 5 and at > rated:
            for key, value in (("started", started), ("ended", ended), ("failed", failed)):
                recent.per_minute[key] = recent.per_minute.get(key, 0.0) + (value or 0)
