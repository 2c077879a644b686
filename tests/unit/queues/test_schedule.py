"""The schedule that the code declares, and what of it reaches beat's tables."""

import json
from typing import Any

import pytest
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from ami.queues import schedule
from ami.queues.models import TickClaim
from ami.queues.schedule import Scheduled, synchronise

TASK = "ami.jobs.tasks.audit_jobs"


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace what the apps declare."""

    def declare(*entries: Scheduled) -> None:
        monkeypatch.setattr(schedule, "declared", lambda: iter(entries))

    return declare


def every(seconds: int, **fields: Any) -> Scheduled:
    return Scheduled(**{"task": TASK, "every_seconds": seconds, "expires_seconds": seconds - 1, **fields})


@pytest.mark.parametrize("expires_seconds", [0, -1, 60, 61])
def test_entry_that_could_outlive_its_next_tick_is_refused(expires_seconds: int):
    with pytest.raises(ValueError, match=f"{TASK}: expires_seconds .{expires_seconds}. must be above 0 and below"):
        Scheduled(task=TASK, every_seconds=60, expires_seconds=expires_seconds)


@pytest.mark.django_db
def test_late_ticks_of_an_entry_that_makes_them_up_do_not_expire(declare: Any):
    declare(Scheduled(task=TASK, every_seconds=60, misfire="all"))
    synchronise()
    entry = PeriodicTask.objects.get(name=TASK)
    assert (entry.expire_seconds, TickClaim.objects.get(entry=entry).misfire) == (None, "all")
    declare(every(60))
    synchronise()
    assert TickClaim.objects.get(entry=entry).misfire == "none"


@pytest.mark.parametrize(
    ("fields", "why"), [({"misfire": "each"}, "give one of none, one, all"), ({"misfire": "one"}, "no tick expires")]
)
def test_policy_that_contradicts_itself_is_refused(fields: dict[str, Any], why: str):
    with pytest.raises(ValueError, match=why):
        every(60, **fields)


def test_apps_declare_entries_each_of_its_own_name():
    entries = [scheduled.entry for scheduled in schedule.declared()]
    assert TASK in entries
    assert len(entries) == len(set(entries))


@pytest.mark.django_db
def test_first_synchronisation_creates_and_the_next_changes_nothing(declare: Any):
    declare(every(60, kwargs={"limit": 5}))
    assert synchronise() == {"created": 1, "updated": 0, "removed": 0}
    row = PeriodicTask.objects.get(name=TASK)
    assert (row.task, row.interval.every, row.interval.period, row.expire_seconds) == (TASK, 60, "seconds", 59)
    assert json.loads(row.kwargs) == {"limit": 5}
    assert synchronise() == {"created": 0, "updated": 1, "removed": 0}
    assert PeriodicTask.objects.get(name=TASK).pk == row.pk


@pytest.mark.django_db
def test_changed_declaration_changes_the_row_and_keeps_the_operators_switch(declare: Any):
    declare(every(60))
    synchronise()
    crontab = CrontabSchedule.objects.create()
    PeriodicTask.objects.filter(name=TASK).update(enabled=False, interval=None, crontab=crontab)
    declare(every(30))
    synchronise()
    row = PeriodicTask.objects.get(name=TASK)
    assert (row.enabled, row.interval.every, row.crontab, row.expire_seconds) == (False, 30, None, 29)


@pytest.mark.django_db
def test_entry_removed_from_the_code_is_removed_and_users_entries_stay(declare: Any):
    declare(every(60), every(90, name="another", task="ami.jobs.tasks.jobs_health_check"))
    synchronise()
    interval = IntervalSchedule.objects.create(every=7, period="days")
    PeriodicTask.objects.create(name="a person's", task=TASK, interval=interval, description="ours")
    declare(every(60))
    assert synchronise() == {"created": 0, "updated": 1, "removed": 1}
    assert set(PeriodicTask.objects.values_list("name", flat=True)) == {TASK, "a person's"}


@pytest.mark.django_db
def test_synchronisation_notifies_beat_of_changes(declare: Any):
    from django_celery_beat.models import PeriodicTasks

    declare(every(60))
    synchronise()
    declare()
    before = PeriodicTasks.last_change()
    synchronise()
    assert PeriodicTasks.last_change() > before
