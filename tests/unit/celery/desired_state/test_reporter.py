"""The worker's thread: it ends a worker whose loop stands still, and only that one."""

import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import DataError, OperationalError

from ami.celery import outages, worker_records
from ami.celery.desired_state import reporter as module
from ami.celery.desired_state.reporter import EXIT_CODE, Reporter
from ami.celery.desired_state.wish_file import WishFile
from ami.celery.failures import spool
from ami.celery.failures.record import Failure
from ami.celery.failures.spool import Spool
from ami.celery.worker_records import Answer, RunningTask, Wish, WorkerReport

REPORT = WorkerReport(
    node="w@a",
    service="",
    host="a",
    queues=("antenna",),
    pool="prefork",
    version="",
    boot_id="",
    pid_namespace="",
    pid=1,
    pid_started=1,
    started_at=0.0,
    is_connected=True,
)


class Ended(BaseException):
    """Raised in place of the process's end."""


@pytest.fixture
def reporter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Reporter:
    def end(code: int) -> None:
        assert code == EXIT_CODE
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    return Reporter(lambda: REPORT, WishFile(tmp_path))


def turns(made: Reporter, count: int, **fields: Any) -> None:
    """Let the thread look so often at a loop whose age grows by a second each time."""
    for number in range(count):
        given = {"loop_age_seconds": 100.0 + number, **fields}
        made._watch(replace(REPORT, **given))


def test_worker_whose_loop_stands_still_is_ended(reporter: Reporter):
    turns(reporter, 59)
    with pytest.raises(Ended):
        reporter._watch(replace(REPORT, loop_age_seconds=1000.0))


@pytest.mark.parametrize("fields", [{"is_connected": False}, {"loop_allowance_seconds": 300.0}])
def test_worker_that_reconnects_or_runs_a_solo_task_is_not(reporter: Reporter, fields: dict[str, Any]):
    turns(reporter, 120, **fields)


def test_loop_that_turns_now_and_then_is_not_wedged(reporter: Reporter):
    for _ in range(5):
        turns(reporter, 50)
        reporter._watch(replace(REPORT, loop_age_seconds=0.1))


def test_process_that_was_stopped_resumes_with_its_patience(reporter: Reporter):
    """Its age has jumped by an hour while it was stopped, and it had no turn meanwhile."""
    turns(reporter, 3)
    reporter._watch(replace(REPORT, loop_age_seconds=3600.0))


class Records:
    """A database that answers with wishes, or does not."""

    def __init__(self) -> None:
        self.wishes: tuple[Wish, ...] | None = (Wish("queue", "antenna", "paused", 1),)

    def beat(self, _: WorkerReport) -> Answer:
        if self.wishes is None:
            raise OperationalError("away\ndetails")
        return Answer(self.wishes, time.time())

    def tasks_running(self, *_: Any) -> None: ...

    def ticks_ended(self, *_: Any) -> None: ...

    def tasks_ended(self, *_: Any) -> None: ...


@pytest.mark.django_db(transaction=True)
def test_last_known_wishes_hold_while_the_database_is_away(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    records, changes = Records(), []
    monkeypatch.setattr(worker_records, "_records", records)
    monkeypatch.setattr(worker_records, "_sweeper", None)
    monkeypatch.setattr(outages, "_outages", {})
    monkeypatch.setattr(module, "short_connection", contextlib.nullcontext)
    reporter.changed = lambda: changes.append(reporter.wishes)
    reporter._beat(REPORT)
    known, records.wishes = records.wishes, None
    for _ in range(3):
        reporter._beat(REPORT)
    assert reporter.wishes == known
    assert changes == [known]
    assert reporter.info()["database_away_seconds"] is not None
    assert sum("cannot be used" in record.message for record in caplog.records) == 1
    assert WishFile(tmp_path).read() == known
    records.wishes = ()
    reporter._beat(REPORT)
    assert (reporter.wishes, reporter.away_since) == ((), None)


def running(progress: str = "") -> WorkerReport:
    return replace(REPORT, running=(RunningTask("t", "a", 1, 0.0, progress=progress),))


@pytest.mark.parametrize(
    ("first", "then", "seconds"),
    [
        (REPORT, REPORT, module.BEAT_SECONDS),
        (REPORT, running(), module.RUNNING_SECONDS),
        (running("1 of 3"), running("2 of 3"), module.PROGRESS_SECONDS),
        (running(), REPORT, module.RUNNING_SECONDS),
        (REPORT, replace(REPORT, is_parked=True), 0.0),
        (REPORT, replace(REPORT, concurrency=3), 0.0),
    ],
)
def test_change_is_reported_soon(
    reporter: Reporter,
    monkeypatch: pytest.MonkeyPatch,
    first: WorkerReport,
    then: WorkerReport,
    seconds: float,
):
    beats, now = [], 1000.0
    monkeypatch.setattr(reporter, "_beat", lambda _: beats.append(now))
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    monkeypatch.setattr(reporter, "_report", lambda: first)
    reporter._turn()
    monkeypatch.setattr(reporter, "_report", lambda: then)
    while len(beats) < 2:
        reporter._turn()
        now += 1
    assert beats == [1000.0, 1000.0 + seconds]


class Refusing(Records):
    """A database that refuses one failure as data, and the row of a worker always."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[str] = []

    def beat(self, _: WorkerReport) -> Answer:
        raise OverflowError("no integer of the database's")

    def failed(self, failures: Any) -> None:
        if any(each.delivery > 2**31 for each in failures):
            raise DataError("integer out of range")
        self.recorded += [each.task_id for each in failures]


@pytest.mark.django_db(transaction=True)
def test_refused_failure_is_set_aside_by_name_also_for_the_next_start(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    records = Refusing()
    monkeypatch.setattr(worker_records, "_records", records)
    monkeypatch.setattr(module, "short_connection", contextlib.nullcontext)
    monkeypatch.setattr(spool, "_spool", kept := Spool(tmp_path))
    for number, delivery in enumerate((0, 2**40, 0)):
        failed_at = 1000.0 + number
        kept.add(Failure(f"id {number}", 0, delivery, "a.task", "error", "E", "", "", "", "", "", 1, failed_at))
    reporter._record_failures()
    assert records.recorded == ["id 0", "id 2"]
    assert reporter.away_since is None
    (line,) = [each for each in caplog.records if "refuses it" in each.message]
    assert (line.levelname, vars(line)["task"], vars(line)["task_id"]) == ("ERROR", "a.task", "id 1")
    assert Spool(tmp_path).read(10) == []


def test_step_that_raises_keeps_no_other_from_its_turn(reporter: Reporter, monkeypatch: pytest.MonkeyPatch):
    watched: list[WorkerReport] = []
    monkeypatch.setattr(worker_records, "_records", Refusing())
    monkeypatch.setattr(module, "short_connection", contextlib.nullcontext)
    monkeypatch.setattr(reporter, "_record_failures", lambda: [][0])
    monkeypatch.setattr(reporter, "_watch", watched.append)
    reporter._turn()
    assert watched == [REPORT]
