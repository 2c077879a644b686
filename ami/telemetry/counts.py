"""Arithmetic with the totals that workers report: lists of `ami.celery.task_times.LENGTH` numbers by queue and task."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ami.celery import task_times
from ami.celery.task_times import BOUNDS, BUCKETS, LENGTH, RUNS, WAITS
from ami.telemetry.snapshots.shape import Quantiles

#: The columns of a `TaskHistogram` that have the first numbers, in their order; those in its buckets follow.
NAMES = ("started", "succeeded", "failed", "retried", "wait_seconds", "run_seconds")

Totals = Mapping[str, Mapping[str, Sequence[float]]]


def new_counts(totals: Totals | None, counted: Totals | None) -> Iterator[tuple[str, str, list[float]]]:
    """Yield (queue, task, what was counted since) for every pair that has changed."""
    for queue, tasks in (totals or {}).items():
        for task, now in tasks.items():
            before = ((counted or {}).get(queue) or {}).get(task) or [0] * LENGTH
            if len(now) != LENGTH or len(before) != LENGTH:
                continue  # Of a version with other buckets.
            delta = [max(0, each - other) for each, other in zip(now, before, strict=True)]
            if any(delta[: task_times.WAIT_SECONDS]):
                yield queue, task, delta


def add(to: list[float], more: Sequence[float]) -> None:
    for place, value in enumerate(more):
        to[place] += value


def quantiles(buckets: Sequence[float]) -> Quantiles:
    """Return the upper bound of the bucket in which each quantile lies; beyond the last bound, that bound."""
    return Quantiles(*(quantile(buckets, share) for share in (0.5, 0.95, 0.99)))


def quantile(buckets: Sequence[float], share: float) -> float | None:
    whole = sum(buckets)
    if not whole:
        return None
    reached = 0.0
    for place, count in enumerate(buckets):
        reached += count
        if reached >= share * whole:
            return float(BOUNDS[min(place, len(BOUNDS) - 1)])
    return float(BOUNDS[-1])


def above(buckets: Sequence[float], seconds: float) -> float:
    """Return how many surely took longer than ``seconds``: whole buckets above it."""
    lows = (0.0, *BOUNDS)
    return sum(count for low, count in zip(lows, buckets, strict=True) if low >= seconds)


def empty() -> list[float]:
    return [0] * LENGTH


def waits(counts: Sequence[float]) -> list[float]:
    return list(counts[WAITS:RUNS])


def runs(counts: Sequence[float]) -> list[float]:
    return list(counts[RUNS:LENGTH])


def of_row(row: Any) -> list[float]:
    """Return the list of a `TaskHistogram`."""
    if len(row.waits) != BUCKETS or len(row.runs) != BUCKETS:
        return empty()
    return [*(getattr(row, name) for name in NAMES), *row.waits, *row.runs]


def ended(counts: Iterable[float]) -> float:
    """Return how many ended, retries included."""
    _, succeeded, failed, retried, *_ = counts
    return succeeded + failed + retried
