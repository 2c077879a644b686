"""Two beats on one database, and clocks that are stepped."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from tests.support.beats import new_beat, publishes, run_due

TASK = "ami.main.tasks.update_stale_counts"

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite]


def entry(every: int, **fields: Any) -> PeriodicTask:
    interval, _ = IntervalSchedule.objects.get_or_create(every=every, period="seconds")
    return PeriodicTask.objects.create(**{"name": "ours", "task": TASK, "interval": interval, **fields})


def test_tick_that_is_due_in_two_beats_is_sent_once() -> None:
    entry(600, last_run_at=timezone.now() - timedelta(hours=1))
    with publishes() as published:
        first, second = new_beat(), new_beat()
        run_due(first)
        run_due(second)
    assert [each.entry for each in published] == ["ours"]


def test_interval_entry_goes_on_within_one_interval_after_a_restart_and_a_step_back() -> None:
    entry(600, last_run_at=timezone.now() + timedelta(hours=1))
    with publishes():
        beat = new_beat()
        _, seconds = beat.schedule["ours"].is_due()
    assert seconds <= 600
