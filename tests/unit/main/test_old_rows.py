"""Old rows are deleted in slices, and what is still needed stays."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.db import OperationalError
from django.utils import timezone

from ami.exports.models import DataExport, ScheduledExport
from ami.jobs import retention as of_jobs
from ami.jobs.models import Job, JobLog, StoredResult
from ami.jobs.models.states import JobStatus
from ami.main import tasks
from ami.main.models import BulkDeletion
from ami.queues import old_rows
from ami.queues.models import (
    AuditEntry,
    DesiredState,
    Fence,
    Letter,
    RefusedRequests,
    Replay,
    TaskCount,
    TaskFailure,
    TaskRun,
)
from tests.support.product import factories

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
NOW, ANCIENT = timezone.now(), timezone.now() - timedelta(days=500)
PURGES = {kept.model: kept.purge for kept in old_rows.declared()}


def purged() -> dict[str, int]:
    found: dict[str, int] = tasks.purge_old_rows.apply(throw=True).get()
    return found


def session(at: datetime) -> Session:
    return Session.objects.create(session_key=f"{at:%Y%j}", session_data="x", expire_date=at + timedelta(days=1))


def history(at: datetime) -> LogEntry:
    entry = LogEntry.objects.create(user=factories.user(), action_flag=1, object_repr="x")
    LogEntry.objects.filter(pk=entry.pk).update(action_time=at)
    return entry


def audited(at: datetime, target: str = "queue q") -> AuditEntry:
    entry = AuditEntry.objects.create(who="ada", verb="pause", target=target)
    AuditEntry.objects.filter(pk=entry.pk).update(at=at)
    return entry


def state(at: datetime, name: str = "", **fields: Any) -> DesiredState:
    values = {"kind": "queue", "aspect": "paused", "value": 0, "by": "ada", "since": at, **fields}
    return DesiredState.objects.create(name=name or f"q{at:%Y}", **values)


def replay(at: datetime, **fields: Any) -> Replay:
    values = {"selection": {}, "total": 1, "most_pk": 1, "by": "ada", "until": at, "state": "ended", **fields}
    return Replay.objects.create(began_at=at, **values)


def line(at: datetime, status: str = JobStatus.SUCCESS) -> JobLog:
    job = Job.objects.create(name="job", project=factories.project(), job_type_key="ml", status=status)
    row = JobLog.objects.create(job=job, message="x")
    JobLog.objects.filter(pk=row.pk).update(created_at=at)
    return row


def result(at: datetime, *, handled: bool = True, **fields: Any) -> StoredResult:
    job = Job.objects.create(name="job", project=factories.project(), job_type_key="ml")
    values = {"handled_at": at if handled else None, "size_bytes": 1, **fields}
    row = StoredResult.objects.create(job=job, key=f"{at:%Y%j}{handled}{fields}", **values)
    StoredResult.objects.filter(pk=row.pk).update(created_at=at)
    return row


def export(at: datetime, **fields: Any) -> DataExport:
    values = {"scheduled": True, "finished_at": at, "format": "occurrences_simple_csv", **fields}
    return DataExport.objects.create(project=factories.project(), **values)


def refused(at: datetime) -> RefusedRequests:
    return RefusedRequests.objects.create(user=factories.user(), status=404, hour=at, last="x")


#: A row of each model at a time; of two years ago it is deleted, of now it stays.
ROWS: dict[str, Callable[[datetime], Any]] = {
    "admin.LogEntry": history,
    "sessions.Session": session,
    "queues.AuditEntry": audited,
    "queues.RefusedRequests": refused,
    "queues.DesiredState": state,
    "queues.Replay": replay,
    "queues.TaskRun": lambda at: TaskRun.objects.create(
        task_id=f"{at:%Y}", task="t", node="n", started_at=at, seen_at=at, ended_at=at
    ),
    "queues.TaskCount": lambda at: TaskCount.objects.create(queue="q", hour=at),
    "queues.Fence": lambda at: Fence.objects.create(key=f"{at:%Y}", run="r", task_id="t", node="n", started_at=at),
    "main.BulkDeletion": lambda at: BulkDeletion.objects.create(target="captures", finished_at=at),
    "jobs.JobLog": line,
    "jobs.StoredResult": result,
    "exports.DataExport": export,
}
#: Tested with what they belong to.
ELSEWHERE = {"queues.TaskFailure", "main.LoginAttempts", "main.ApiToken"}


def test_old_rows_of_every_table_are_deleted_and_young_ones_stay(caplog: pytest.LogCaptureFixture) -> None:
    assert set(ROWS) | ELSEWHERE == set(PURGES)
    caplog.set_level("INFO", "ami.queues.old_rows")
    kept = [make(moment) for make in ROWS.values() for moment in (ANCIENT, NOW)][1::2]
    assert purged() == dict.fromkeys(ROWS, 1)
    assert len([record for record in caplog.records if "Old rows deleted: 1 of" in record.message]) == 1
    assert [type(row).objects.filter(pk=row.pk).exists() for row in kept] == [True] * len(kept)
    assert purged() == {}


def test_what_is_still_needed_stays(settings: Any) -> None:
    settings.ANTENNA_AUDIT_DAYS = settings.ANTENNA_JOB_LOG_DAYS = 1
    settings.ANTENNA_COLLECT_LETTERS = True
    schedule = ScheduledExport.objects.create(name="x", project=factories.project(), format="f", enabled=False)
    schedule.last_export = export(ANCIENT)
    schedule.save()
    Letter.objects.create(identity="a", queue="q", task_id="letter", task="t", reason="r", collected_at=NOW, **FIRST)
    Letter.objects.create(
        identity="b", queue="q", task_id="b", task="aside", state="set aside", collected_at=NOW, **FIRST
    )
    needed = [
        state(ANCIENT, "q", value=1),
        audited(ANCIENT + timedelta(seconds=1)),
        state(ANCIENT, "w@a", kind="node", aspect="parked"),
        state(ANCIENT, "aside", kind="task name", aspect="disabled"),
        replay(NOW - timedelta(days=3), state="running"),
        audited(NOW - timedelta(days=2), "9 letters: all"),
        line(ANCIENT, JobStatus.STARTED),
        result(ANCIENT, handled=False),
        result(ANCIENT, handled=False, error="buried", batch_id="letter"),
        export(ANCIENT, scheduled=False),
        export(ANCIENT, finished_at=None),
        schedule.last_export,
    ]
    over = [
        audited(ANCIENT - timedelta(days=1)),
        audited(ANCIENT, "queue other"),
        result(ANCIENT, handled=False, error="x"),
    ]
    assert purged() == {"queues.AuditEntry": 2, "jobs.StoredResult": 1}
    assert [type(row).objects.filter(pk=row.pk).exists() for row in (*needed, *over)] == [True] * len(needed) + [
        False
    ] * 3


FIRST = {"body": b"", "headers": "{}", "properties": "{}", "first_collected_at": NOW, "first_reason": "r"}


def test_buried_result_stays_while_its_letter_may_be_a_message(settings: Any) -> None:
    young = {"retries": 0, "delivery": 0, "task": "t", "kind": "error", "exception": "E", "cause": "c"}
    TaskFailure.objects.create(task_id="died just now", failed_at=NOW, **young)
    result(ANCIENT, handled=False, error="x", batch_id="died just now")
    assert purged() == {}, "it is not collected yet"
    TaskFailure.objects.all().delete()
    settings.ANTENNA_COLLECT_LETTERS = False
    assert purged() == {}, "it lies in its queue"
    settings.ANTENNA_COLLECT_LETTERS = True
    assert purged() == {"jobs.StoredResult": 1}


def test_job_keeps_its_newest_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_jobs, "MOST_LINES", 3)
    few, many = (line(NOW, JobStatus.STARTED).job for _ in "ab")
    for number in range(5):
        many.log(f"line {number}")
    assert purged() == {"jobs.JobLog": 3}
    assert set(many.log_entries.values_list("message", flat=True)) == {"line 2", "line 3", "line 4"}
    assert few.log_entries.count() == 1


def test_a_slice_deletes_at_most_a_thousand_rows_and_has_a_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    AuditEntry.objects.bulk_create(AuditEntry(who="ada", verb="pause") for _ in range(2500))
    AuditEntry.objects.update(at=ANCIENT)
    published: list[Any] = []
    monkeypatch.setattr(tasks, "publish_successor", lambda task: published.append(task.name))
    slices = iter([False, *[False] * len(PURGES), True] * 9)
    monkeypatch.setattr(tasks.Slice, "over", lambda _: next(slices))
    assert [purged().get("queues.AuditEntry") for _ in range(3)] == [1000, 1000, 500]
    assert set(published) == {"ami.main.tasks.purge_old_rows"}
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("error", [OperationalError("locked"), ConnectionError("bucket away")])
def test_table_that_cannot_be_purged_holds_up_no_other(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken() -> int:
        raise error

    session(ANCIENT)
    kept = [old_rows.Kept("queues.Broken", broken), *old_rows.declared()]
    monkeypatch.setattr(old_rows, "declared", lambda: iter(kept))
    with pytest.raises(type(error)):
        old_rows.purge(lambda: False)
    assert not Session.objects.exists()


def test_handbook_says_of_every_model_how_long_it_is_kept() -> None:
    text = (Path(settings.BASE_DIR) / "docs/operations/records.md").read_text()
    section = text.partition("\n## What is kept, and how long\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+\.\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(model._meta.label for model in apps.get_models())
    purged = "".join(row.split("|")[1] for row in rows if "purged" in row.split("|")[2])
    assert [model for model in PURGES if f"`{model}`" not in purged] == []
