"""The snapshot: what is wrong with a queue that RabbitMQ says little about."""

import os
import subprocess
from dataclasses import replace
from datetime import timedelta

import pytest
from celery import current_app
from django.conf import settings
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.celery.task_times import LENGTH
from ami.celery.worker_records import RunningTask, WorkerReport
from ami.governor.probes import identity
from ami.queues import audit_log
from ami.queues.models import Beat, DesiredState, Worker
from ami.queues.worker_rows import DatabaseWorkerRecords
from ami.telemetry import findings
from ami.telemetry.broker_figures import BrokerFigures
from ami.telemetry.models import CountedTotals, Sample, SharedValue
from ami.telemetry.snapshots import live, shared
from ami.telemetry.snapshots.shape import as_json, from_json

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
QUEUE = "antenna"


@pytest.fixture
def waiting(monkeypatch):
    """Let so many messages wait in the queue, as RabbitMQ says it: without their age."""

    def set_waiting(count: int) -> None:
        figures = BrokerFigures(waiting={QUEUE: count}, consumers={QUEUE: 1})
        monkeypatch.setattr(live.link, "read", lambda *_, **__: figures)

    return set_waiting


def taken():
    snapshot = live.take(current_app, settings.ANTENNA_TOPOLOGY, 3)
    assert from_json(as_json(snapshot)) == snapshot
    return snapshot


def of_queue():
    snapshot = taken()
    return next(each for each in snapshot.queues if each.queue == QUEUE)


def sample(seconds_ago: float, **figures):
    at = timezone.now() - timedelta(seconds=seconds_ago)
    Sample.objects.create(kind="queue", name=QUEUE, resolution=5, at=at, **figures)


def worker(totals=None, **fields):
    now = timezone.now()
    values = {"started_at": now, "seen_at": now, "host": "a", "service": "celeryworker", "pid": 1, "is_connected": True}
    return Worker.objects.create(
        node="antenna@a", queues=[QUEUE], connection_name="a#1", totals=totals or {}, **values | fields
    )


def wish(kind: str, name: str, aspect: str, value: int = 1, seconds_ago: float = 60, **fields):
    since = timezone.now() - timedelta(seconds=seconds_ago)
    DesiredState.objects.create(kind=kind, name=name, aspect=aspect, value=value, since=since, **fields)


def test_messages_that_nobody_starts_break_the_promise(waiting):
    waiting(5)
    sample(100, waiting=5, started=0)
    sample(30, waiting=5, started=0)
    found = of_queue()
    assert (found.promise, found.oldest_is_bound, found.oldest_seconds) == ("broken", True, None)


def test_messages_that_were_started_since_do_not(waiting):
    waiting(5)
    sample(100, waiting=5, started=0)
    sample(30, waiting=5, started=50)
    found = of_queue()
    assert found.promise == "unknown"
    assert found.oldest_seconds == pytest.approx(100, abs=5)


def test_waits_that_are_not_counted_yet_are_shown(waiting):
    waiting(0)
    late = [3, 3, 0, 0, 900.0, 0.1, *([0] * (LENGTH - 6))]
    late[6 + 14] = 3
    worker({QUEUE: {"a": late}})
    assert of_queue().promise == "broken"
    CountedTotals.objects.create(connection_name="a#1", totals={QUEUE: {"a": late}}, counted_at=timezone.now())
    assert of_queue().promise == "unknown"


def test_paused_queue_says_who_and_why(waiting):
    waiting(2)
    since = timezone.now()
    DesiredState.objects.create(
        kind="queue", name=QUEUE, aspect="paused", value=1, by="ada", why="disk", since=since, until=None
    )
    found = of_queue()
    assert (found.promise, found.paused.by, found.paused.why) == ("broken", "ada", "disk")


def test_snapshot_is_a_dozen_statements_at_most(waiting):
    waiting(2)
    worker({QUEUE: {"a": [0] * LENGTH}})
    entries(3)
    with CaptureQueriesContext(connection) as queries:
        of_queue()
    assert len(queries) <= 12


def entries(count: int):
    """So many entries of beat's schedule, due in 40 s, 50 s and so on, and a beat."""
    now = timezone.now()
    interval = IntervalSchedule.objects.create(every=60, period="seconds")
    for number in range(count):
        last = now - timedelta(seconds=20 - 10 * number)
        PeriodicTask.objects.create(name=f"e{number}", task="a.task", interval=interval, last_run_at=last)
    Beat.objects.create(name="beat@a", started_at=now, seen_at=now)


def test_next_tick_is_the_first_of_all_entries(waiting):
    waiting(0)
    entries(2)
    PeriodicTask.objects.create(
        name="off", task="a.task", enabled=False, interval=IntervalSchedule.objects.get(), last_run_at=None
    )
    snapshot = taken()
    (beat,) = snapshot.beats
    assert beat.next_tick_at - snapshot.taken_at == pytest.approx(40, abs=5)


def test_parked_worker_says_by_whom_before_it_has_confirmed(waiting):
    waiting(0)
    worker()
    wish("service", "celeryworker", "parked", by="ada", why="its fan")
    (found,) = taken().workers
    stop = found.parked
    assert (found.state, stop.by, stop.why, stop.what) == ("running", "ada", "its fan", "parked")


@pytest.mark.parametrize(
    ("later", "what"), [(("node", "antenna@a", "parked", 0), None), (("host", "a", "stopped", 1), "stopped")]
)
def test_latest_wish_for_node_host_or_service_counts(waiting, later, what):
    waiting(0)
    worker()
    wish("service", "celeryworker", "parked", by="ada")
    wish(*later, seconds_ago=30)
    (found,) = taken().workers
    assert (found.parked.what if found.parked else None) == what


def test_worker_whose_process_is_gone_is_dead_before_it_misses_a_beat(waiting):
    waiting(0)
    here = {"boot_id": identity.boot_id(), "pid_namespace": identity.pid_namespace()}
    worker(**here, pid=os.getpid(), pid_started=identity.start_ticks(os.getpid()))
    assert taken().workers[0].state == "running"
    Worker.objects.update(pid_started=1)  # Another process has the number now.
    assert [(each.state, each.why) for each in taken().workers] == [("dead", "its process is gone")]
    Worker.objects.update(pid_namespace="pid:[1]")  # In another container nothing is known of it.
    assert taken().workers[0].state == "running"


def test_delayed_messages_are_of_their_queue_where_the_broker_tells(monkeypatch):
    for by_queue, delayed in (({QUEUE: 2}, 2), ({}, 0), (None, None)):
        figures = BrokerFigures(waiting={QUEUE: 0}, delayed=2, delayed_by_queue=by_queue)
        monkeypatch.setattr(live.link, "read", lambda *_, figures=figures, **__: figures)
        snapshot = taken()
        assert (snapshot.delayed, of_queue().delayed) == (2, delayed)


@pytest.fixture
def snapshots(monkeypatch, waiting):
    """Return the version of the snapshot that a poll of another process gets."""
    waiting(0)
    monkeypatch.setattr(findings, "current", lambda _: ((), 0.0))
    shared.forget()

    def polled() -> int:
        shared.forget()  # What this process remembers.
        return shared.current(60.0).version

    yield polled
    shared.forget()


def test_operation_lets_every_process_take_a_new_snapshot(snapshots, django_capture_on_commit_callbacks):
    before = snapshots()
    assert snapshots() == before
    with django_capture_on_commit_callbacks(execute=True):
        audit_log.record("pause", who="ada", which="queue antenna")
    assert snapshots() > before


@pytest.mark.processes
def test_worker_that_is_killed_lets_the_next_poll_take_a_new_snapshot(snapshots):
    process = subprocess.Popen(["/bin/sleep", "60"])
    here = {"boot_id": identity.boot_id(), "pid_namespace": identity.pid_namespace()}
    worker(**here, pid=process.pid, pid_started=identity.start_ticks(process.pid))
    shared.outdate()
    before = snapshots()
    assert snapshots() == before
    process.kill()
    process.wait()
    after = snapshots()
    assert after > before
    assert shared.current(60.0).workers[0].state == "dead"
    assert snapshots() == after, "once"


def test_worker_that_changes_lets_every_process_take_a_new_snapshot(snapshots, django_capture_on_commit_callbacks):
    records, report = DatabaseWorkerRecords(), reported()
    for changed, is_new in (
        (report, True),
        (report, False),
        (replace(report, loop_age_seconds=2.0), False),
        (replace(report, is_parked=True), True),
        (replace(report, running=(RunningTask("t", "a", 1, 0.0),)), True),
    ):
        before = snapshots()
        with django_capture_on_commit_callbacks(execute=True):
            records.beat(changed)
        assert (snapshots() > before) is is_new
    with django_capture_on_commit_callbacks(execute=True):
        records.ended(report)
    assert snapshots() > before


@pytest.mark.parametrize(("seconds", "is_new"), [(0, False), (4, True), (90, False)])
def test_other_tasks_outdate_an_older_snapshot_that_somebody_watches(
    snapshots, django_capture_on_commit_callbacks, seconds, is_new
):
    records, report = DatabaseWorkerRecords(), reported()
    records.beat(report)
    shared.current(0.0)
    row = SharedValue.objects.filter(name=shared.NAME)
    row.update(made_at=F("made_at") - timedelta(seconds=seconds))
    before = row.get().version
    with django_capture_on_commit_callbacks(execute=True):
        records.beat(replace(report, running=(RunningTask("t", "a", 1, 0.0, progress="1 of 2"),)))
    assert (row.get().version > before) is is_new


def reported() -> WorkerReport:
    facts = {"pool": "prefork", "version": "1", "boot_id": "", "pid_namespace": "", "pid": 1, "pid_started": 1}
    return WorkerReport(
        node="w@a", service="", host="a", queues=(QUEUE,), started_at=0.0, connection_name="w#1", **facts
    )
