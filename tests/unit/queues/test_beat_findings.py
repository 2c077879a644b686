"""What `check --live` says of beat: none, two, and ticks that are late."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from ami.queues.diagnostics.beat import findings
from ami.queues.models import Beat, TickClaim
from ami.queues.ticks import DatabaseTickClaims

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def standing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands, so that a busy machine makes no tick later."""
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)


def entry(late: timedelta = timedelta(), **fields: Any) -> PeriodicTask:
    """An entry of every ten minutes whose tick is overdue."""
    interval, _ = IntervalSchedule.objects.get_or_create(every=600, period="seconds")
    last_run_at = timezone.now() - timedelta(minutes=10) - late
    values = {"name": "ours", "task": "a.task", "interval": interval, "last_run_at": last_run_at}
    return PeriodicTask.objects.create(**{**values, **fields})


def beat(name: str, seen: timedelta = timedelta()) -> None:
    DatabaseTickClaims().beat_started(name)
    Beat.objects.filter(name=name).update(seen_at=timezone.now() - seen)


def found() -> dict[str, tuple[str, str]]:
    return {item.name: (item.level, item.sentence) for item in findings()}


def test_deployment_without_entries_needs_no_beat():
    entry(enabled=False)
    assert found() == {}


def test_enabled_entries_without_a_beat_are_an_error():
    entry(late=MINUTE * 5)
    level, sentence = found()["no-beat"]
    assert level == "error"
    assert sentence.startswith("No beat runs; enabled entries: 1. Start it: 'python -m ami.topology beat'.")


def test_beat_that_ticks_no_more_is_named():
    entry()
    beat("host:7", seen=MINUTE * 5)
    assert found()["no-beat"][1].startswith("No beat has ticked for 300 s (the last was host:7); enabled entries: 1.")


def test_beat_that_ticks_is_no_finding():
    entry()
    beat("host:7", seen=MINUTE / 2)
    assert found() == {}


def test_several_beats_are_no_finding():
    entry()
    for name in ("a:1", "b:2"):
        beat(name)
    assert found() == {}


def test_late_tick_is_a_warning_with_the_latest_first():
    beat("a:1")
    entry(late=MINUTE * 2)
    cron = CrontabSchedule.objects.create(minute="*")
    entry(name="cron", interval=None, crontab=cron, last_run_at=timezone.now() - MINUTE * 9)
    entry(name="in time", late=MINUTE / 2)
    entry(name="off", enabled=False)
    level, sentence = found()["late-tick"]
    assert level == "warning"
    assert [part.split(" by ")[0] for part in sentence.split(": ")[1].split(".")[0].split(", ")] == ["cron", "ours"]
    assert "ours by 120 s" in sentence


@pytest.mark.parametrize(
    "fields",
    [
        {"expires": timezone.now()},
        {"start_time": timezone.now() + DAY},
        {"start_time": timezone.now(), "last_run_at": None},
        {"one_off": True, "total_run_count": 1},
        {"interval": None},
    ],
    ids=lambda fields: ", ".join(fields),
)
def test_entry_that_beat_does_not_send_is_not_late(fields: dict[str, Any]):
    beat("a:1")
    row = entry(late=MINUTE * 9)
    PeriodicTask.objects.filter(pk=row.pk).update(**fields)
    assert found() == {}


def test_tick_is_late_by_its_claim_not_by_the_last_run_that_beat_writes_later():
    beat("a:1")
    row = entry(late=MINUTE * 2)
    claim = TickClaim.objects.create(entry=row, number=3, claimed_at=timezone.now())
    assert found() == {}
    TickClaim.objects.update(is_sent=False, claimed_at=timezone.now() - MINUTE * 2)
    assert "ours by 120 s" in found()["late-tick"][1]
    assert claim.pk == row.pk


@pytest.mark.django_db(transaction=True)
def test_database_that_does_not_answer_is_not_beats_fault():
    with connection.schema_editor() as editor:
        editor.alter_db_table(Beat, "queues_beat", "away")
    try:
        with pytest.raises(DatabaseError):
            found()
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(Beat, "away", "queues_beat")
