"""What counters read: cumulative buckets and outcomes since the first sample."""

import pytest

from ami.celery.task_times import BOUNDS
from ami.telemetry import counts, histograms
from ami.telemetry.models import TaskTotal

pytestmark = pytest.mark.django_db


def test_counters_are_cumulative_and_whole():
    each = counts.empty()
    each[:6] = [5, 3, 1, 1, 7.5, 2.25]
    each[6], each[8], each[6 + len(BOUNDS)] = 2, 2, 1
    TaskTotal.objects.create(queue="antenna", task="a", counts=each)
    TaskTotal.objects.create(queue="antenna", task="of another version", counts=[1, 2])
    waits, runs = histograms.read()[0]
    assert waits.cumulative[:4] == (2, 2, 4, 4)
    assert (waits.cumulative[-1], len(waits.cumulative), waits.sum_seconds) == (5, len(BOUNDS) + 1, 7.5)
    assert (runs.kind, runs.sum_seconds) == ("run", 2.25)
    assert histograms.read()[1] == {("antenna", "a"): histograms.Outcomes(5, 3, 1, 1)}
