"""Adds what workers report as totals since their start to the histograms of each minute: each count once.

The totals of a worker that were counted are kept beside the histograms, in one transaction: a process that takes over
counts from there. It renews the sampler's lease in the same transaction, so two processes never count the same.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from celery.utils.log import get_logger
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from ami.celery import batch_writes
from ami.queues.models import EndedWorker
from ami.telemetry import counts
from ami.telemetry.counts import Totals
from ami.telemetry.models import CountedTotals, TaskHistogram, TaskTotal

logger = get_logger(__name__)

#: What is known of a worker that is gone is forgotten after this time.
KEPT = timedelta(days=2)


def write(told: Mapping[str, Totals], *, is_new: bool, holds: Callable[[], bool]) -> bool:
    """Write what the workers have counted since the last writing; ``told`` is by their connection names.

    Returns False, with nothing written, where ``holds`` does: another process has the lease. Without anything new it is
    two statements.
    """
    with transaction.atomic():
        if not holds():
            return False
        ended = {row.connection_name: row.totals for row in EndedWorker.objects.all()}
        if not (is_new or ended):
            return True
        # What a worker that has ended told last is the more recent of the two.
        batch_writes.write(list({**told, **ended}.items()), lambda some: _count(dict(some)), _refused)
        EndedWorker.objects.filter(pk__in=list(ended)).delete()
    return True


def _count(reported: Mapping[str, Totals]) -> None:
    with transaction.atomic():
        counted = {row.connection_name: row.totals for row in CountedTotals.objects.filter(pk__in=reported)}
        found: dict[tuple[str, str], list[float]] = {}
        for name, totals in reported.items():
            for queue, task, delta in counts.new_counts(totals, counted.get(name)):
                counts.add(found.setdefault((queue, task), counts.empty()), delta)
        _add(found)
        _keep(reported)


def _refused(reported: tuple[str, Totals], error: Exception) -> None:
    logger.error("Totals of a worker not counted, the database refuses them: %r", error, extra={"worker": reported[0]})


def forget_old() -> None:
    CountedTotals.objects.filter(counted_at__lt=Now() - KEPT).delete()


def _add(found: Mapping[tuple[str, str], list[float]]) -> None:
    if not found:
        return
    minute = timezone.now().replace(second=0, microsecond=0)
    TaskHistogram.objects.bulk_create(row(queue, task, minute, each) for (queue, task), each in found.items())
    known = {(row.queue, row.task): row.counts for row in TaskTotal.objects.all()}
    for key, each in found.items():
        counts.add(each, known.get(key) or counts.empty())
    TaskTotal.objects.bulk_create(
        [TaskTotal(queue=queue, task=task, counts=each) for (queue, task), each in found.items()],
        update_conflicts=True,
        unique_fields=["queue", "task"],
        update_fields=["counts"],
    )


def row(queue: str, task: str, at: Any, each: list[float], resolution: int = 60) -> TaskHistogram:
    return TaskHistogram(
        queue=queue,
        task=task,
        resolution=resolution,
        at=at,
        **dict(zip(counts.NAMES, each, strict=False)),
        waits=counts.waits(each),
        runs=counts.runs(each),
    )


def _keep(told: Mapping[str, Totals]) -> None:
    CountedTotals.objects.bulk_create(
        [CountedTotals(connection_name=name, totals=totals, counted_at=Now()) for name, totals in told.items()],
        update_conflicts=True,
        unique_fields=["connection_name"],
        update_fields=["totals", "counted_at"],
    )
