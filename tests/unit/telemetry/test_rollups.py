"""Samples become minutes and hours, and are deleted when they are old."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from ami.telemetry import rollups
from ami.telemetry.models import Sample, TaskHistogram

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def sample(at, resolution=5, **figures):
    return Sample.objects.create(kind="queue", name="antenna", resolution=resolution, at=at, **figures)


def test_minute_holds_the_largest_the_mean_and_the_sum():
    for second, waiting in ((0, 3), (30, 9), (55, 0)):
        sample(NOON + timedelta(seconds=second), waiting=waiting, running=waiting, started=2, failed=None)
    sample(NOON + timedelta(seconds=60), waiting=100, running=0, started=50)
    for _ in range(2):
        rollups.roll(5, 60, NOON + timedelta(seconds=140))
    row = Sample.objects.get(resolution=60, at=NOON)
    assert (row.at, row.waiting, row.running, row.started, row.failed) == (NOON, 9, 4.0, 6, None)


def test_old_rows_are_deleted_by_their_resolution():
    now = timezone.now()
    kept = [
        sample(now - timedelta(hours=47)),
        sample(now - timedelta(days=29), 60),
        sample(now - timedelta(days=700), 3600),
    ]
    for days, resolution in ((2.1, 5), (31, 60), (731, 3600)):
        sample(now - timedelta(days=days), resolution)
    TaskHistogram.objects.create(queue="antenna", task="a", at=now - timedelta(days=31))
    assert not rollups.forget_old()
    assert set(Sample.objects.all()) == set(kept)
    assert not TaskHistogram.objects.exists()


def test_more_than_one_statement_deletes_waits(monkeypatch):
    monkeypatch.setattr(rollups, "MOST_DELETED", 2)
    for day in range(5):
        sample(timezone.now() - timedelta(days=3 + day))
    assert rollups.forget_old()
    assert Sample.objects.count() == 3


def test_minute_whose_samples_are_not_written_yet_waits():
    sample(NOON, waiting=1, started=2)
    rollups.roll(5, 60, NOON + timedelta(seconds=70))
    assert not Sample.objects.filter(resolution=60).exists()
