"""Figures over time: the resolution follows the span, and a chart has few points."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ami.celery.task_times import BOUNDS, BUCKETS
from ami.telemetry import series
from ami.telemetry.models import Sample, TaskHistogram

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def samples(resolution: int, count: int):
    now = timezone.now()
    Sample.objects.bulk_create(
        Sample(
            kind="queue",
            name="antenna",
            resolution=resolution,
            at=now - timedelta(seconds=resolution * (count - place) - 1),
            waiting=place,
            started=resolution,
        )
        for place in range(count)
    )


@pytest.mark.parametrize(("span", "resolution"), [(3600, 5), (86400, 60), (7 * 86400, 3600)])
def test_chart_has_few_points_and_rates_per_minute(span: int, resolution: int):
    for each in (5, 60, 3600):
        samples(each, span // each if each == resolution else 10)
    with CaptureQueriesContext(connection) as queries:
        found = series.queue_series("antenna", span)
    assert len(queries) <= 3
    assert 100 < len(found.times) <= series.MOST_POINTS
    assert {len(values) for values in found.columns.values()} == {len(found.times)}
    assert set(found.columns["started"]) == {60.0}
    assert max(found.columns["waiting"]) == span // resolution - 1


def test_worker_without_samples_has_an_empty_series():
    found = series.worker_series("nobody@a", 3600)
    assert found.times == []
    assert set(found.columns) == set(series.WORKER_COLUMNS)


def test_p95_of_a_day_is_of_the_hour_or_of_its_minutes():
    samples(60, 1440)
    this_hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for resolution, at, bucket in ((3600, this_hour - timedelta(hours=5), 4), (60, this_hour, 6)):
        waits = [0] * BUCKETS
        waits[bucket] = 10
        TaskHistogram.objects.create(
            queue="antenna", task="a", resolution=resolution, at=at, waits=waits, runs=[0] * BUCKETS
        )
    found = series.queue_series("antenna", 86400)
    assert [each for each in dict.fromkeys(found.columns["p95_wait"]) if each] == [BOUNDS[4], BOUNDS[6]]
