"""The console's schedule: what ticked, what is next and late, in few statements; and its levers."""

from collections.abc import Iterator
from datetime import UTC, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import current_app
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from ami.queues import schedule_rows
from ami.queues.models import AuditEntry, Beat, TickClaim
from ami.queues.schedule import MARK
from ami.queues.ticks import DatabaseTickClaims
from tests.support.brokers import celery_at
from tests.support.console_pages import buttons, client, few_statements, text

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
SCHEDULE, TASK = "/admin/queues/schedule/", "ami.main.tasks.purge_old_rows"


def entry(name: str = "ours", late_seconds: float = 0, **fields: Any) -> PeriodicTask:
    """An entry of every minute, so many seconds overdue."""
    interval, _ = IntervalSchedule.objects.get_or_create(every=60, period="seconds")
    last = timezone.now() - timedelta(seconds=60 + late_seconds)
    values = {"name": name, "task": TASK, "interval": interval, "last_run_at": last}
    return PeriodicTask.objects.create(**values | fields)


def lever(verb: str, name: str = "ours") -> str:
    return f"/admin/queues/lever/{verb}/{name}/"


@pytest.fixture
def broker() -> Iterator[None]:
    with celery_at("objectstore+memory://console-schedule"):
        current_app.declare_everything()
        yield


def test_late_entry_says_how_many_ticks_it_missed():
    entry(late_seconds=200)
    (row,) = schedule_rows.rows()
    assert (row.state, row.missed, row.queue) == ("late", 3, "antenna-housekeeping")
    page = text(client().get(SCHEDULE))
    assert "3 missed" in page
    assert "No beat runs." in page


def test_states_of_entries_and_of_their_last_ticks():
    crontab = CrontabSchedule.objects.create(minute="0", hour="4")
    entry("off", enabled=False)
    entry("cron", interval=None, crontab=crontab, last_run_at=timezone.now())
    entry("once", one_off=True, total_run_count=1)
    unsent = entry("unsent")
    TickClaim.objects.create(entry=unsent, number=1, task_id="t", claimed_at=timezone.now(), is_sent=False)
    rows = {row.name: row for row in schedule_rows.rows()}
    assert {name: row.state for name, row in rows.items()} == {
        "off": "disabled",
        "cron": "on time",
        "once": "over",
        "unsent": "on time",
    }
    assert rows["unsent"].last_state == "claimed and not sent"
    assert rows["off"].next_due_at is None
    assert rows["cron"].next_due_at > timezone.now()


def test_statements_do_not_grow_with_the_entries():
    crontab = CrontabSchedule.objects.create(minute="0", hour="4")
    for number in range(30):
        made = entry(
            f"each {number}", late_seconds=100, **({"interval": None, "crontab": crontab} if number % 2 else {})
        )
        TickClaim.objects.create(entry=made, number=1, task_id=f"t{number}", claimed_at=timezone.now(), ends=1)
    for name in ("host:7", "host:8"):
        DatabaseTickClaims().beat_started(name)
    browser = client("change_periodictask")
    with few_statements(6):
        schedule_rows.rows()
    with few_statements():
        page = text(browser.get(SCHEDULE))
    for name in ("host:7", "host:8"):
        assert f"Beat {name}: seen" in page
    assert len(browser.get(f"{SCHEDULE}?format=json").json()["schedule"]) == 30


def test_entry_is_switched_off_and_on_with_its_reason():
    row = entry()
    made = client("change_periodictask")
    made.post(lever("disable-entry"), {"why": "too often"})
    row.refresh_from_db()
    assert (row.enabled, row.last_run_at) == (False, None)
    made.post(lever("enable-entry"), {"why": "fixed"})
    row.refresh_from_db()
    assert row.enabled
    assert list(AuditEntry.objects.order_by("pk").values_list("verb", "why")) == [
        ("disable entry", "too often"),
        ("enable entry", "fixed"),
    ]


def test_policy_for_late_ticks_is_chosen_and_shown():
    row = entry()
    made = client("change_periodictask")
    form = text(made.get(lever("misfire")))
    assert all(f"<option>{each}</option>" in form for each in ("none", "one", "all"))
    made.post(lever("misfire"), {"why": "a report for each day", "misfire": "all"})
    assert TickClaim.objects.get(entry=row).misfire == "all"
    assert '<td data-label="Late ticks">all</td>' in text(made.get(SCHEDULE))
    PeriodicTask.objects.update(description=MARK)
    assert "/lever/misfire/" not in text(made.get(SCHEDULE))


@pytest.mark.django_db(transaction=True)
def test_entry_that_is_run_now_links_to_its_task(broker: None):
    entry()
    answer = client("change_periodictask").post(lever("run-entry"), {"next": SCHEDULE}, follow=True)
    assert '<a href="/admin/queues/task/' in text(answer)
    assert "antenna-interactive" in text(answer)


def test_poll_of_an_unchanged_schedule_is_304():
    entry()
    Beat.objects.create(name="beat@a", started_at=timezone.now(), seen_at=timezone.now())
    made = client()
    first = made.get(SCHEDULE, {"live": "table"})
    assert made.get(SCHEDULE, {"live": "table"}, headers={"If-None-Match": first["ETag"]}).status_code == 304
    PeriodicTask.objects.update(enabled=False)
    changed = made.get(SCHEDULE, {"live": "table"}, headers={"If-None-Match": first["ETag"]})
    assert (changed.status_code, changed["ETag"] == first["ETag"]) == (200, False)


def test_entry_that_is_gone_is_said():
    answer = client("change_periodictask").post(lever("disable-entry", "gone/for good"))
    assert answer.status_code == 400
    assert "There is no entry &#x27;gone/for good&#x27; any more" in answer.content.decode()


def test_viewer_has_no_levers_and_a_post_is_403():
    entry()
    page = text(client().get(SCHEDULE))
    assert buttons(page) == []
    assert "/lever/" not in page
    assert lever("run-entry") in text(client("change_periodictask").get(SCHEDULE))
    for verb in ("disable-entry", "enable-entry", "run-entry"):
        assert client().post(lever(verb)).status_code == 403


def test_empty_schedule_says_how_to_fill_it():
    assert "python manage.py setup" in text(client().get(SCHEDULE))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe"])
def test_next_due_is_shown_to_the_second_and_never_early(zone: str):
    crontab = CrontabSchedule.objects.create(minute="*/7", timezone=zone)
    last = timezone.now().replace(microsecond=970_000)
    entry("cron", interval=None, crontab=crontab, last_run_at=last)
    entry("each", last_run_at=last)
    rows = {row.name: row for row in schedule_rows.rows()}
    cron, each = rows["cron"].next_due_at, rows["each"].next_due_at
    assert (cron.astimezone(ZoneInfo(zone)).minute % 7, cron.second, cron.microsecond) == (0, 0, 0)
    assert last + timedelta(seconds=60) <= each <= last + timedelta(seconds=61)
    page = text(client().get(SCHEDULE))
    for due in (cron, each):
        assert f">{due.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC</time>" in page


def test_entry_of_the_longest_name_is_listed():
    entry("n" * 200, task="t" * 200)
    assert "n" * 200 in text(client().get(SCHEDULE))
