"""Beat when the wall clock is stepped, at a restart, and when summer time begins and ends."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from ami.celery.tick_claims import ALL, NONE, ONE
from ami.queues.due import due_at
from ami.queues.models import TickClaim
from tests.support.beat_simulation import Simulation, VirtualClock, scheduler_on
from tests.support.beats import new_beat, publishes, run_due

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
        # Local 02:00 twice: both run every hour. Daily at 02:30: once.
        (datetime(2026, 10, 24, 23, 30, tzinfo=UTC), ["00:00", "01:00", "02:00"]),
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


def shown(zone: str, minutes: set[int], begin: datetime, hours: int) -> list[str]:
    """Return the times, in UTC, at which a clock in the zone shows one of the minutes."""
    times = (begin + timedelta(minutes=passed) for passed in range(1, hours * 60))
    return [f"{time:%d %H:%M}" for time in times if time.astimezone(ZoneInfo(zone)).minute in minutes]


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
        ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
        ("America/Los_Angeles", datetime(2026, 11, 1, 9, tzinfo=UTC)),
        ("America/Los_Angeles", datetime(2026, 3, 8, 10, tzinfo=UTC)),
        ("America/Havana", datetime(2026, 11, 1, 5, tzinfo=UTC)),
        ("America/Havana", datetime(2026, 3, 8, 5, tzinfo=UTC)),  # At midnight.
        ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),  # By half an hour.
        ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
        ("Pacific/Chatham", datetime(2026, 4, 4, 14, tzinfo=UTC)),
        ("Asia/Kolkata", datetime(2026, 10, 25, 1, tzinfo=UTC)),  # None.
    ],
)
def test_crontab_of_every_hour_runs_whenever_the_clock_shows_its_minute(zone: str, change: datetime):
    begin, hours = change - timedelta(hours=3, minutes=8), 6
    clock = VirtualClock(begin)
    minutes = {"*/15": {0, 15, 30, 45}, "0": {0}, "5,50": {5, 50}}
    for minute in minutes:
        at = CrontabSchedule.objects.create(minute=minute, timezone=zone)
        entry(name=minute, crontab=at, last_run_at=begin)
    sent = Simulation(count=1, clock=clock).run(hours * HOUR - 30)
    for minute, each in minutes.items():
        times = [f"{one.wall:%d %H:%M}" for one in sent if one.entry == minute]
        assert times == shown(zone, each, begin, hours), minute


def test_page_and_beat_agree_when_an_entry_of_every_hour_is_due_next():
    now = datetime(2026, 10, 25, 0, 50, tzinfo=UTC)  # 02:50 in Berlin, the first time.
    row = entry(crontab=CrontabSchedule.objects.create(minute="*/15", timezone="Europe/Berlin"), last_run_at=now)
    for minutes in range(0, 120, 5):
        row.last_run_at = moment = now + timedelta(minutes=minutes)
        assert due_at(row, None, moment) == moment + timedelta(minutes=15 - moment.minute % 15)


@pytest.mark.parametrize(("policy", "days"), [(NONE, 1), (ONE, 1), (ALL, 2)])
def test_late_tick_of_a_daily_crontab_is_sent_whatever_its_hour(policy: str, days: int):
    """On the clock of this machine: beat was away for two days."""
    now = timezone.now()
    minute = str((now.minute + 30) % 60)
    for hour in range(24):
        daily = CrontabSchedule.objects.create(minute=minute, hour=str(hour), timezone=["UTC", "Asia/Tokyo"][hour % 2])
        row = entry(name=f"at {hour}", crontab=daily, last_run_at=now - timedelta(days=2))
        TickClaim.objects.create(entry=row, misfire=policy)
    with publishes() as sent:
        run_due(new_beat())
    counts = Counter(each.entry for each in sent if each.entry.startswith("at "))
    assert counts == {f"at {hour}": days for hour in range(24)}
