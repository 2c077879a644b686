"""A task without a routing rule is counted when it runs, and runs also when it cannot be counted."""

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery.signals import task_postrun, task_prerun, worker_process_shutdown, worker_shutdown
from django.db import DatabaseError
from django.utils import timezone

from ami.telemetry import unrouted_tasks
from ami.telemetry.models import UnroutedTask
from config import celery_app

pytestmark = pytest.mark.django_db
NAME = "other.project.task"


@pytest.fixture(autouse=True)
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[unrouted_tasks.Counts]:
    """The counts of a process that has just started."""
    fresh = unrouted_tasks.Counts()
    monkeypatch.setattr(unrouted_tasks, "counts", fresh)
    return fresh


def sender(name: str) -> Any:
    return SimpleNamespace(name=name, app=celery_app)


def run(name: str = NAME) -> None:
    """Count a task as the signals around it do."""
    unrouted_tasks.count(sender=sender(name))
    unrouted_tasks.after_task(sender=sender(name))


def test_each_run_is_counted_and_the_first_one_said(caplog: Any):
    began = timezone.now()
    for _ in range(3):
        run()
    unrouted_tasks.at_exit()
    row = UnroutedTask.objects.get(name=NAME)
    assert row.runs == 3
    assert began <= row.last_run_at <= timezone.now()
    said = [record for record in caplog.records if "Unrouted task runs on the fallback queue" in record.getMessage()]
    assert [record.task for record in said] == [NAME]


def test_task_that_stays_unrouted_is_said_again(caplog: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unrouted_tasks, "WARN_SECONDS", 0)
    for _ in range(2):
        run()
    assert [record.task for record in caplog.records if "Unrouted task runs" in record.getMessage()] == [NAME] * 2


def test_first_run_is_written_at_its_end_and_the_next_ones_together(
    counts: unrouted_tasks.Counts, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
):
    run()
    assert UnroutedTask.objects.get(name=NAME).runs == 1
    with django_assert_num_queries(0):
        for _ in range(100):
            run()
    monkeypatch.setattr(unrouted_tasks, "WRITE_SECONDS", 0)
    with django_assert_num_queries(1):
        run()
    assert UnroutedTask.objects.get(name=NAME).runs == 102
    with django_assert_num_queries(0):
        unrouted_tasks.at_exit()


@pytest.mark.parametrize("name", ["ami.jobs.tasks.run_job", "ami.main.tasks.update_x", "celery.chord_unlock"])
def test_routed_tasks_and_celerys_own_are_not_counted(name: str):
    run(name)
    unrouted_tasks.at_exit()
    assert not UnroutedTask.objects.exists()


def test_runs_that_the_database_does_not_take_are_kept_for_the_next_write(monkeypatch: pytest.MonkeyPatch, caplog: Any):
    def away(*_: Any) -> None:
        raise DatabaseError("away")

    with monkeypatch.context() as patched:
        patched.setattr(unrouted_tasks, "_add", away)
        run()
    (record,) = [record for record in caplog.records if "not counted" in record.getMessage()]
    assert (record.getMessage(), record.task) == ("Unrouted task not counted: DatabaseError('away')", NAME)
    unrouted_tasks.at_exit()
    assert UnroutedTask.objects.get(name=NAME).runs == 1


def test_two_workers_that_count_for_the_first_time_lose_no_run(monkeypatch: pytest.MonkeyPatch):
    """Another worker's row appears between this one's update and its insert."""
    real = UnroutedTask.objects.get_or_create

    def late(*args: Any, **kwargs: Any) -> Any:
        UnroutedTask.objects.create(name=NAME, runs=1, last_run_at=timezone.now())
        return real(*args, **kwargs)

    monkeypatch.setattr(UnroutedTask.objects, "get_or_create", late)
    run()
    assert UnroutedTask.objects.get(name=NAME).runs == 2


def test_latest_run_of_another_child_stays_the_last(counts: unrouted_tasks.Counts):
    now = timezone.now()
    UnroutedTask.objects.create(name=NAME, runs=1, last_run_at=now)
    counts.add(NAME, 1, now - timedelta(seconds=3))
    counts.write()
    assert UnroutedTask.objects.values_list("runs", "last_run_at").get(name=NAME) == (2, now)


@pytest.mark.parametrize(
    ("signal", "name"),
    [
        (task_prerun, "telemetry.unrouted"),
        (task_postrun, "telemetry.unrouted.after_task"),
        (worker_process_shutdown, "telemetry.unrouted.child_exit"),
        (worker_shutdown, "telemetry.unrouted.worker_exit"),
    ],
)
def test_counter_listens_around_every_task_and_at_the_ends_of_processes(signal: Any, name: str):
    assert name in [key[0] for key, *_ in signal.receivers]
