"""A slice ends after its time, when no slot for long work is free, and on a lone slot when others wait."""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore

from ami.queues import reserved_slot, slices
from ami.queues.publish import publish_successor
from ami.queues.reserved_slot import LONG_HEADER, ROOM_SECONDS
from ami.queues.slices import Slice
from ami.topology.router import ORIGIN_HEADER
from ami.topology.topology import load

NAME = "ami.exports.tasks.run_export"


class FakeTask:
    """As much of a running task as a slice asks for."""

    name = NAME

    def __init__(self, task_id: str, concurrency: int = 2, **headers: Any) -> None:
        topology = load({"ANTENNA_INTERACTIVE_CONCURRENCY": str(concurrency)})
        self.app = SimpleNamespace(topology=topology, conf=SimpleNamespace(worker_concurrency=None))
        self.request = SimpleNamespace(
            id=task_id, hostname="interactive@host", headers=headers, kwargs={"export_id": 7}
        )
        self.published: list[dict[str, Any]] = []

    def apply_async(self, **options: Any) -> None:
        self.published.append(options)

    apply_async_on_commit = DjangoTask.apply_async_on_commit


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(slices, "FAIR_SHARE_SECONDS", 0)
    yield
    for task_id in list(reserved_slot._held):
        reserved_slot.free(task_id=task_id)


def test_slice_is_over_after_its_time():
    assert Slice(FakeTask("a"), seconds=0).over()
    assert not Slice(FakeTask("b"), seconds=60).over()


def test_short_work_asks_for_no_slot(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slices, "FAIR_SHARE_SECONDS", 60)
    assert not Slice(FakeTask("a")).over()
    assert reserved_slot._held == {}


@pytest.mark.django_db
def test_second_long_task_of_a_worker_of_two_makes_room(django_capture_on_commit_callbacks: Any):
    long, second = FakeTask("a"), FakeTask("b", **{ORIGIN_HEADER: "person"})
    assert not Slice(long).over()
    assert Slice(second).over()
    with django_capture_on_commit_callbacks(execute=True):
        task_id = publish_successor(second, export_id=7)
    (successor,) = second.published
    assert successor["task_id"] == task_id
    assert successor["kwargs"] == {"export_id": 7}
    assert successor["countdown"] == ROOM_SECONDS
    assert successor["headers"] == {ORIGIN_HEADER: "person", LONG_HEADER: True}


@pytest.mark.django_db
def test_successor_that_finds_no_slot_publishes_itself_again_untouched(django_capture_on_commit_callbacks: Any):
    assert not Slice(FakeTask("a")).over()
    successor = FakeTask("b", **{LONG_HEADER: True, ORIGIN_HEADER: "beat"})
    with django_capture_on_commit_callbacks(execute=True), pytest.raises(Ignore):
        Slice(successor)
    (again,) = successor.published
    assert (again["kwargs"], again["countdown"], again["headers"][ORIGIN_HEADER]) == ({"export_id": 7}, 1, "beat")


@pytest.mark.django_db
def test_slice_that_ran_its_time_publishes_its_successor_at_once(django_capture_on_commit_callbacks: Any):
    task = FakeTask("a")
    assert Slice(task, seconds=0).over()
    with django_capture_on_commit_callbacks(execute=True):
        publish_successor(task, export_id=7)
    assert task.published[0].get("countdown") is None


@pytest.mark.parametrize("waiting", [True, False])
def test_lone_slot_makes_room_only_when_another_message_waits(monkeypatch: pytest.MonkeyPatch, waiting: bool):
    monkeypatch.setattr(slices, "others_wait", lambda _: waiting)
    task = FakeTask("a", concurrency=1)
    assert Slice(task).over() is waiting
    assert task.request.antenna_makes_room is waiting


def test_slots_are_those_that_the_worker_was_started_with(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slices, "others_wait", lambda _: True)
    task = FakeTask("a", concurrency=4)
    task.app.conf.worker_concurrency = 1
    assert Slice(task).over()


def test_broker_that_does_not_answer_ends_no_slice(caplog: Any):
    task = FakeTask("a", concurrency=1)

    def away() -> None:
        raise ConnectionRefusedError("away")

    task.app.connection_or_acquire = away
    assert slices.others_wait(task) is False
    (record,) = [record for record in caplog.records if record.getMessage().startswith("Queue depth unknown: ")]
    assert record.queue == "antenna-interactive"
