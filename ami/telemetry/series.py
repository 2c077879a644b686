"""What a queue or a worker was like over time, for charts."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from ami.celery import task_times
from ami.queues.models import AuditEntry
from ami.telemetry import counts
from ami.telemetry.models import Sample, TaskHistogram

QUEUE_COLUMNS = ("waiting", "delayed", "running", "consumers")
RATES = ("started", "ended", "failed")
WORKER_COLUMNS = ("memory_used_bytes", "memory_limit_bytes", "children", "running", "held")
MOST_POINTS = 750
#: The verbs of the audit log that are marked on a queue's chart.
MARKED = ("pause", "resume")


@dataclass(frozen=True)
class Series:
    """``times`` are epoch seconds in order, each column has a value or None for each; rates are per minute."""

    times: list[float] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Mark:
    """Something that happened to a queue; ``kind`` is paused, resumed or version."""

    at: float
    kind: str
    text: str


def queue_series(queue: str, span_seconds: float) -> Series:
    """Return a queue's figures of the last ``span_seconds``, with ``p95_wait`` in seconds; two statements."""
    resolution, since = _resolution(span_seconds)
    rows = list(_samples(Sample.Kind.QUEUE, queue, resolution, since))
    columns: dict[str, list[float | None]] = {name: [getattr(row, name) for row in rows] for name in QUEUE_COLUMNS}
    for name in RATES:
        columns[name] = [None if getattr(row, name) is None else getattr(row, name) * 60 / resolution for row in rows]
    p95 = _p95(queue, 60 if resolution < 3600 else 3600, since)
    step = 60 if resolution < 3600 else 3600
    columns["p95_wait"] = [p95.get(row.at.timestamp() // step) for row in rows]
    return Series([row.at.timestamp() for row in rows], columns)


def worker_series(node: str, span_seconds: float) -> Series:
    """Return a worker's figures of the last ``span_seconds``; one statement."""
    resolution, since = _resolution(span_seconds)
    rows = list(_samples(Sample.Kind.WORKER, node, resolution, since))
    return Series(
        [row.at.timestamp() for row in rows],
        {name: [getattr(row, name) for row in rows] for name in WORKER_COLUMNS},
    )


def marks(queue: str, span_seconds: float) -> list[Mark]:
    """Return when operators paused and resumed a queue; one statement."""
    since = timezone.now() - timedelta(seconds=span_seconds)
    rows = AuditEntry.objects.filter(at__gt=since, verb__in=MARKED, target=f"queue {queue}").order_by("at")[:200]
    return [
        Mark(row.at.timestamp(), f"{row.verb}d", f"{row.verb}d by {row.who}{f': {row.why}' if row.why else ''}")
        for row in rows
    ]


def _resolution(span_seconds: float) -> tuple[int, datetime]:
    found = next(each for each in (5, 60, 3600) if span_seconds / each <= MOST_POINTS or each == 3600)
    return found, timezone.now() - timedelta(seconds=span_seconds)


def _samples(kind: str, name: str, resolution: int, since: datetime) -> Any:
    return Sample.objects.filter(kind=kind, name=name, resolution=resolution, at__gt=since).order_by("at")


def _p95(queue: str, resolution: int, since: datetime) -> dict[float, float | None]:
    found: dict[float, list[float]] = {}
    rows = TaskHistogram.objects.filter(queue=queue, resolution=resolution, at__gt=since)
    for at, waits in rows.values_list("at", "waits"):
        if len(waits) == task_times.BUCKETS:
            counts.add(found.setdefault(at.timestamp() // resolution, [0.0] * task_times.BUCKETS), waits)
    return {at: counts.quantile(waits, 0.95) for at, waits in found.items()}
