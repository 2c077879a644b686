"""Figures over time: the resolution follows the span, and a chart has few points."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ami.celery.task_times import BOUNDS, BUCKETS
from ami.queues.models import AuditEntry
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


@pytest.mark.parametrize("minute", [0, 1, 2, 30, 59])
def test_p95_of_a_day_is_of_the_hour_or_of_its_minutes(minute: int, monkeypatch: pytest.MonkeyPatch):
    now = timezone.now().replace(minute=minute, second=30)
    monkeypatch.setattr(timezone, "now", lambda: now)
    samples(60, 1440)
    # At the first two minutes of an hour the last samples, of which every second one is shown, are of the hour before.
    this_hour = (now - timedelta(minutes=2)).replace(minute=0, second=0, microsecond=0)
    for resolution, at, bucket in ((3600, this_hour - timedelta(hours=5), 4), (60, this_hour, 6)):
        waits = [0] * BUCKETS
        waits[bucket] = 10
        TaskHistogram.objects.create(
            queue="antenna", task="a", resolution=resolution, at=at, waits=waits, runs=[0] * BUCKETS
        )
    found = series.queue_series("antenna", 86400)
    assert [each for each in dict.fromkeys(found.columns["p95_wait"]) if each] == [BOUNDS[4], BOUNDS[6]]


def told(node: str, seconds_ago: float, version: str):
    at = timezone.now() - timedelta(seconds=seconds_ago)
    Sample.objects.create(kind="worker", name=node, resolution=5, at=at, version=version)


def test_first_worker_of_another_version_is_marked():
    for seconds, node, version in (
        (900, "fallback@a", "1"),
        (890, "fallback@b", "1"),
        (700, "fallback@a", "2"),
        (690, "fallback@b", "1"),
        (680, "fallback@b", "2"),
        (600, "ingest@a", "9"),
        (500, "fallback@c", "2"),
        (300, "fallback@a", "1"),
    ):
        told(node, seconds, version)
    AuditEntry.objects.create(who="ada", verb="pause", target="queue antenna", why="disk")
    with CaptureQueriesContext(connection) as queries:
        found = series.marks("antenna", 3600)
    assert len(queries) == 2
    assert [(mark.kind, mark.text) for mark in found] == [
        ("version", "fallback@a runs version 2, before it was 1"),
        ("version", "fallback@a runs version 1, before it was 2"),
        ("paused", "paused by ada: disk"),
    ]


def test_worker_was_last_seen_when_it_was_sampled_last():
    told("fallback@a", 900, "1")
    told("fallback@a", 800, "2")
    at, version = series.last_seen("fallback@a")
    assert version == "2"
    assert (timezone.now() - at).total_seconds() == pytest.approx(800, abs=10)
    assert series.last_seen("fallback@z") is None
