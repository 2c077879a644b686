"""Beat when the wall clock is stepped, at a restart, and when summer time begins and ends."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from tests.support.beat_simulation import Simulation, VirtualClock, scheduler_on
from tests.support.beats import new_beat, publishes

TASK = "ami.jobs.tasks.audit_data_integrity"
HOUR = 3600.0

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite]


def entry(**fields: Any) -> PeriodicTask:
    return PeriodicTask.objects.create(**{"name": "ours", "task": TASK, **fields})


def interval(seconds: int) -> IntervalSchedule:
    return IntervalSchedule.objects.create(every=seconds, period="seconds")


@pytest.mark.parametrize("by", [-HOUR, HOUR])
def test_interval_entry_keeps_its_pace_when_the_clock_is_stepped(by: float):
    clock = VirtualClock()
    entry(interval=interval(600), last_run_at=clock.now())
    sent = Simulation(count=1, clock=clock, steps=[(900, by)]).run(1900)
    assert [round(each.elapsed / 600) for each in sent] == [1, 2, 3]


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=400)])
def test_interval_entry_goes_on_within_one_interval_after_a_restart_and_a_step_back(ahead: timedelta):
    clock = VirtualClock()
    entry(interval=interval(600), last_run_at=clock.now() + ahead)
    with publishes():
        assert new_beat(scheduler_on(clock)).schedule["ours"].is_due().next <= 600


@pytest.mark.parametrize(("by", "sent_at"), [(-HOUR, [53, 173]), (HOUR, [53, 60, 113, 173])])
def test_hourly_crontab_repeats_no_hour_and_runs_once_for_a_skipped_one(by: float, sent_at: list[int]):
    """In minutes; stepped after an hour. Back: the next hour is two hours away. Ahead: the skipped hour is at once."""
    clock = VirtualClock(datetime(2026, 6, 1, 0, 7, tzinfo=UTC))
    entry(crontab=CrontabSchedule.objects.create(minute="0"), last_run_at=clock.now())
    sent = Simulation(count=2, clock=clock, steps=[(HOUR, by)]).run(3 * HOUR - 60)
    assert [each.elapsed / 60 for each in sent if each.entry == "ours"] == pytest.approx(sent_at, abs=0.2)


def test_crontab_goes_on_when_its_last_run_is_more_than_a_day_ahead():
    clock = VirtualClock()
    entry(crontab=CrontabSchedule.objects.create(minute="0"), last_run_at=clock.now() + timedelta(days=400))
    assert len(Simulation(count=1, clock=clock).run(HOUR)) == 1


@pytest.mark.parametrize(
    ("start", "hourly"),
    [
        # Local 01:00 and 03:00: 02:00 does not exist. Daily at 02:30: once, when the clock has passed it.
        (datetime(2026, 3, 28, 23, 30, tzinfo=UTC), ["00:00", "01:00", "02:00"]),
        # Local 02:00 twice: the second (01:00 UTC) does not run again.
        (datetime(2026, 10, 24, 23, 30, tzinfo=UTC), ["00:00", "02:00"]),
    ],
)
def test_crontab_with_a_time_zone_at_a_change_of_summer_time(start: datetime, hourly: list[str]):
    clock = VirtualClock(start)
    berlin = {"timezone": "Europe/Berlin"}
    entry(name="hourly", crontab=CrontabSchedule.objects.create(minute="0", **berlin), last_run_at=clock.now())
    daily = CrontabSchedule.objects.create(minute="30", hour="2,14", **berlin)
    entry(name="daily", crontab=daily, last_run_at=clock.now())
    sent = Simulation(clock=clock).run(3 * HOUR)
    assert [f"{each.wall:%H:%M}" for each in sent if each.entry == "hourly"] == hourly
    assert [each.entry for each in sent].count("daily") == 1
