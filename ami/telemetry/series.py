"""What a queue or a worker was like over time, for charts."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Q, Window
from django.db.models.functions import Lag
from django.utils import timezone

from ami.celery import task_times
from ami.queues.models import AuditEntry
from ami.telemetry import counts
from ami.telemetry.models import Sample, TaskHistogram

QUEUE_COLUMNS = ("waiting", "delayed", "running", "consumers")
RATES = ("started", "ended", "failed")
WORKER_COLUMNS = ("memory_used_bytes", "memory_limit_bytes", "children", "running", "held")
MOST_POINTS = 720
#: A day of minutes is read and thinned; a week is read by the hour.
MOST_ROWS = 1500
#: The verbs of the audit log that are marked on a queue's chart.
MARKED = ("pause", "resume")
MOST_MARKS = 200


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
    found = _thinned(_samples(Sample.Kind.QUEUE, queue, resolution, since, (*QUEUE_COLUMNS, *RATES)))
    for name in RATES:
        found.columns[name] = [None if each is None else each * 60 / resolution for each in found.columns[name]]
    # A day has too many histograms of minutes.
    step = 60 if resolution == 5 else 3600
    p95 = _p95(queue, step, since)
    found.columns["p95_wait"] = [p95.get(at // step) for at in found.times]
    return found


def worker_series(node: str, span_seconds: float) -> Series:
    """Return a worker's figures of the last ``span_seconds``; one statement."""
    resolution, since = _resolution(span_seconds)
    return _thinned(_samples(Sample.Kind.WORKER, node, resolution, since, WORKER_COLUMNS))


def last_seen(node: str) -> tuple[datetime, str] | None:
    """Return when a worker was sampled last, and its version then; None where it never was; one to three statements."""
    for resolution in (5, 60, 3600):
        rows = Sample.objects.filter(kind=Sample.Kind.WORKER, name=node, resolution=resolution).order_by("-at")
        if found := rows.values_list("at", "version").first():
            return found
    return None


def marks(queue: str, span_seconds: float) -> list[Mark]:
    """Return when operators paused and resumed a queue, and when its workers' version changed; two statements."""
    found = [*_pauses(queue, span_seconds), *_versions(queue, span_seconds)]
    return sorted(found, key=lambda mark: mark.at)[-MOST_MARKS:]


def _pauses(queue: str, span_seconds: float) -> list[Mark]:
    since = timezone.now() - timedelta(seconds=span_seconds)
    rows = AuditEntry.objects.filter(at__gt=since, verb__in=MARKED, target=f"queue {queue}").order_by("-at")[
        :MOST_MARKS
    ]
    return [
        Mark(row.at.timestamp(), f"{row.verb}d", f"{row.verb}d by {row.who}{f': {row.why}' if row.why else ''}")
        for row in rows
    ]


def _versions(queue: str, span_seconds: float) -> list[Mark]:
    """Return when a worker of the queue began to tell another version than the one before it did."""
    resolution, since = _resolution(span_seconds)
    node = f"{settings.ANTENNA_TOPOLOGY.workload(queue).key.lower()}@"
    told = Sample.objects.filter(kind=Sample.Kind.WORKER, name__startswith=node, resolution=resolution, at__gt=since)
    before = Window(Lag("version"), partition_by="name", order_by="at")
    changed = told.exclude(version="").annotate(before=before).filter(Q(before=None) | ~Q(version=F("before")))
    found, current = [], ""
    for name, at, version in changed.order_by("at").values_list("name", "at", "version")[:MOST_ROWS]:
        # In a rollout the first worker is marked alone; what ran when the span began is not new.
        if version != current and current:
            found.append(Mark(at.timestamp(), "version", f"{name} runs version {version}, before it was {current}"))
        current = version
    return found


def _resolution(span_seconds: float) -> tuple[int, datetime]:
    most = {5: MOST_POINTS, 60: MOST_ROWS}
    found = next((each for each, rows in most.items() if span_seconds / each <= rows), 3600)
    return found, timezone.now() - timedelta(seconds=span_seconds)


def _samples(kind: str, name: str, resolution: int, since: datetime, columns: tuple[str, ...]) -> Series:
    rows = Sample.objects.filter(kind=kind, name=name, resolution=resolution, at__gt=since).order_by("at")
    times: list[float] = []
    found: dict[str, list[float | None]] = {column: [] for column in columns}
    for at, *values in rows.values_list("at", *columns):
        times.append(at.timestamp())
        for column, value in zip(columns, values, strict=True):
            found[column].append(value)
    return Series(times, found)


def _thinned(series: Series) -> Series:
    """Return at most `MOST_POINTS` points: of several the first time, the largest gauge and the mean rate."""
    step = -(-len(series.times) // MOST_POINTS)
    if step <= 1:
        return series
    starts = range(0, len(series.times), step)
    columns: dict[str, list[float | None]] = {}
    for name, values in series.columns.items():
        groups = [[each for each in values[at : at + step] if each is not None] for at in starts]
        mean = name in RATES
        columns[name] = [(sum(each) / len(each) if mean else max(each)) if each else None for each in groups]
    return Series([series.times[at] for at in starts], columns)


def _p95(queue: str, step: int, since: datetime) -> dict[float, float | None]:
    """Return the p95 of the waits of each minute or hour; an hour that is not summed up yet by its minutes."""
    recent = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    wanted = Q(resolution=60, at__gte=since if step == 60 else max(since, recent))
    if step == 3600:
        wanted |= Q(resolution=3600, at__gt=since - timedelta(hours=1))
    found: dict[tuple[int, float], list[float]] = {}
    rows = TaskHistogram.objects.filter(wanted, queue=queue)
    for resolution, at, waits in rows.values_list("resolution", "at", "waits"):
        if len(waits) == task_times.BUCKETS:
            key = resolution, at.timestamp() // step
            counts.add(found.setdefault(key, [0.0] * task_times.BUCKETS), waits)
    # The coarser ones last: they are whole.
    return {at: counts.quantile(found[resolution, at], 0.95) for resolution, at in sorted(found)}
