"""A task without a routing rule is counted when it runs, and runs also when it cannot be counted."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.signals import task_prerun
from django.db import DatabaseError
from django.utils import timezone

from ami.telemetry import unrouted_tasks
from ami.telemetry.models import UnroutedTask
from config import celery_app

pytestmark = pytest.mark.django_db
NAME = "other.project.task"


def sender(name: str) -> Any:
    return SimpleNamespace(name=name, app=celery_app)


def test_each_run_is_counted_and_said(caplog: Any):
    began = timezone.now()
    for _ in range(3):
        unrouted_tasks.count(sender=sender(NAME))
    row = UnroutedTask.objects.get(name=NAME)
    assert row.runs == 3
    assert began <= row.last_run_at <= timezone.now()
    said = [record for record in caplog.records if "Unrouted task runs on the fallback queue" in record.getMessage()]
    assert [record.task for record in said] == [NAME] * 3


@pytest.mark.parametrize("name", ["ami.jobs.tasks.run_job", "ami.main.tasks.update_x", "celery.chord_unlock"])
def test_routed_tasks_and_celerys_own_are_not_counted(name: str):
    unrouted_tasks.count(sender=sender(name))
    assert not UnroutedTask.objects.exists()


def test_database_that_does_not_answer_stops_no_task(monkeypatch: pytest.MonkeyPatch, caplog: Any):
    def away(name: str) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(unrouted_tasks, "_add_one", away)
    unrouted_tasks.count(sender=sender(NAME))
    (record,) = [record for record in caplog.records if "not counted" in record.getMessage()]
    assert (record.getMessage(), record.task) == ("Unrouted task not counted: DatabaseError('away')", NAME)


def test_two_workers_that_count_for_the_first_time_lose_no_run(monkeypatch: pytest.MonkeyPatch):
    """Another worker's row appears between this one's update and its insert."""
    real = UnroutedTask.objects.get_or_create

    def late(*args: Any, **kwargs: Any) -> Any:
        UnroutedTask.objects.create(name=NAME, runs=1, last_run_at=timezone.now())
        return real(*args, **kwargs)

    monkeypatch.setattr(UnroutedTask.objects, "get_or_create", late)
    unrouted_tasks.count(sender=sender(NAME))
    assert UnroutedTask.objects.get(name=NAME).runs == 2


def test_counter_listens_before_every_task():
    assert "telemetry.unrouted" in [key[0] for key, *_ in task_prerun.receivers]
