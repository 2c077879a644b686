"""A worker's beat: two statements, its row, and what it reads."""

import time
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from ami.celery.worker_records import RunningTask, WorkerReport
from ami.governor.probes import identity
from ami.queues.models import DesiredState, Lease, TaskRun, Worker
from ami.queues.rescue import gone
from ami.queues.worker_rows import DatabaseWorkerRecords

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]

REPORT = WorkerReport(
    node="ingest@a",
    service="celeryworker_ingest",
    host="a",
    queues=("antenna-ingest",),
    pool="prefork",
    version="1",
    boot_id="boot",
    pid_namespace="pid:[1]",
    pid=7,
    pid_started=70,
    started_at=time.time(),
    children=((8, 80), (9, 90)),
    connection_name="ingest@a#1",
    is_connected=True,
)
TASK = RunningTask("id", "task", 8, time.time() - 5, kib=100, progress="step 1", beaten_at=time.time())


def test_beat_costs_two_statements_and_tells_the_wishes():
    records = DatabaseWorkerRecords()
    records.beat(REPORT)
    DesiredState.objects.create(kind="queue", name="antenna-ingest", aspect="paused", value=1, by="ada", since=Now())
    with CaptureQueriesContext(connection) as queries:
        answer = records.beat(replace(REPORT, closed_queues=("antenna-ingest",)))
    assert len(queries) == 2
    (wish,) = answer.wishes
    assert (wish.name, wish.value, wish.until) == ("antenna-ingest", 1, None)
    assert abs(answer.now - time.time()) < 60
    row = Worker.objects.get()
    assert (row.closed_queues, row.children, row.queues) == (["antenna-ingest"], [[8, 80], [9, 90]], ["antenna-ingest"])


@pytest.mark.parametrize(("holder", "seconds", "free"), [("b", 10, False), ("b", -10, True), ("ingest@a", 10, True)])
def test_beat_tells_whether_the_sweep_is_needed_and_free(holder: str, seconds: int, free: bool):
    Lease.objects.create(name="sweep", holder=holder, until=Now() + timedelta(seconds=seconds))
    DatabaseWorkerRecords().beat(replace(REPORT, node="silent@a"))
    Worker.objects.update(seen_at=Now() - timedelta(seconds=25))
    answer = DatabaseWorkerRecords().beat(REPORT)
    assert answer.sweep_is_needed is free
    assert 24 < answer.oldest_beat_seconds < 60


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({}, False),
        ({"loop_age_seconds": 40}, True),
        ({"loop_age_seconds": 40, "loop_allowance_seconds": 60}, False),
        ({"frame_age_seconds": 70}, True),
        ({"verdict": "wedged"}, True),
        ({"verdict": "dead", "seen_at": Now() - timedelta(seconds=25)}, False),
    ],
)
def test_sweep_is_needed_for_who_is_not_well(fields: dict[str, object], needed: bool):
    DatabaseWorkerRecords().beat(replace(REPORT, node="other@a"))
    Worker.objects.filter(node="other@a").update(**fields)
    assert DatabaseWorkerRecords().beat(REPORT).sweep_is_needed is needed


def test_beat_leaves_what_the_sweep_found():
    DatabaseWorkerRecords().beat(REPORT)
    Worker.objects.update(verdict="wedged", flagged_at=Now())
    DatabaseWorkerRecords().beat(REPORT)
    assert Worker.objects.get().verdict == "wedged"


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(gone, "_listeners", [names.append])
    return names


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("ami.queues.worker_rows.time.monotonic", lambda: now[0])
    return now


NEXT = replace(REPORT, connection_name="ingest@a#2")


def test_next_start_of_a_node_releases_at_once_what_a_process_held_that_is_gone(released: list[str]):
    here = {"boot_id": identity.boot_id(), "pid_namespace": identity.pid_namespace()}
    DatabaseWorkerRecords().beat(replace(REPORT, **here))
    records = DatabaseWorkerRecords()
    for _ in range(2):
        records.beat(replace(NEXT, **here))
    assert released == ["ingest@a#1"]


def test_next_start_elsewhere_releases_when_the_old_one_is_silent(released: list[str], clock: list[float]):
    DatabaseWorkerRecords().beat(REPORT)
    records = DatabaseWorkerRecords()
    for seconds in (0, 10, 9.9):
        clock[0] += seconds
        records.beat(NEXT)
    assert released == []
    records.tasks_running(NEXT.node, [TASK, replace(TASK, id="old")])
    TaskRun.objects.filter(task_id="old").update(seen_at=Now() - timedelta(seconds=30))
    clock[0] += 0.1
    for _ in range(2):
        records.beat(NEXT)
    assert released == ["ingest@a#1"]
    assert TaskRun.objects.get(ended_at=None).task_id == "id"


def test_two_workers_of_one_name_do_not_release_each_other(released: list[str], clock: list[float]):
    first, second = DatabaseWorkerRecords(), DatabaseWorkerRecords()
    for _ in range(5):
        first.beat(REPORT)
        second.beat(NEXT)
        clock[0] += 10
    assert released == []


def test_end_of_one_start_leaves_the_row_of_another():
    records = DatabaseWorkerRecords()
    records.beat(NEXT)
    records.ended(REPORT)
    assert Worker.objects.exists()
    records.ended(NEXT)
    assert not Worker.objects.exists()


def test_running_tasks_are_written_in_one_statement_and_end():
    records = DatabaseWorkerRecords()
    with CaptureQueriesContext(connection) as queries:
        records.tasks_running("ingest@a", [TASK, replace(TASK, id="other")])
    assert len(queries) == 1
    records.tasks_running("ingest@a", [replace(TASK, progress="step 2")])
    row, other = TaskRun.objects.get(task_id="id"), TaskRun.objects.get(task_id="other")
    assert (row.progress, row.ended_at, row.attempts, row.kib) == ("step 2", None, 1, 100)
    assert other.outcome == "ended"
    with CaptureQueriesContext(connection) as queries:
        DatabaseWorkerRecords().tasks_running("ingest@a", [])
    assert len(queries) == 0


def test_redelivered_task_that_ends_before_it_is_listed_does_not_run_for_ever():
    records = DatabaseWorkerRecords()
    records.attempt("id", "task", "ingest@a")
    records.tasks_running("ingest@a", [], ["id"])
    assert TaskRun.objects.get(task_id="id").outcome == "ended"


def test_starts_of_a_redelivered_task_are_counted():
    records = DatabaseWorkerRecords()
    records.tasks_running("ingest@a", [TASK])
    assert [records.attempt(task, "task", "b") for task in ("id", "id", "unlisted")] == [2, 3, 2]
    row = TaskRun.objects.get(task_id="id")
    assert (row.node, row.is_redelivered, row.ended_at) == ("b", True, None)


def test_runs_of_a_killed_start_end_at_the_next_and_all_end_with_their_worker():
    killed = DatabaseWorkerRecords()
    here = replace(REPORT, boot_id=identity.boot_id(), pid_namespace=identity.pid_namespace(), pid=2**22 + 1)
    killed.beat(here)
    killed.tasks_running(here.node, [TASK])
    killed.tasks_running("other@a", [replace(TASK, id="other")])
    started = DatabaseWorkerRecords()
    started.beat(replace(here, connection_name="ingest@a#2"))
    assert [row.outcome for row in TaskRun.objects.filter(ended_at__isnull=False)] == ["killed"]
    started.tasks_running(here.node, [TASK])
    assert TaskRun.objects.filter(ended_at=None).count() == 2
    killed.ended(here)
    assert TaskRun.objects.filter(ended_at=None).count() == 2, "the node is another start's"
    started.ended(replace(here, connection_name="ingest@a#2"))
    assert TaskRun.objects.get(ended_at=None).node == "other@a"
