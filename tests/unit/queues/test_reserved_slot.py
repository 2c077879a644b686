"""One slot of a worker stays free of long work, also when holders of the others are killed."""

import os
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from celery.signals import task_postrun

from ami.queues import reserved_slot
from tests.support.governor.forked_processes import Forked, forked
from tests.support.place import until

WORKER = "interactive@host"
ask_parent = reserved_slot._worker_pid


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A folder of the test's own, and this process as the parent of the worker's children."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(reserved_slot, "_worker_pid", os.getpid)
    yield
    for task_id in list(reserved_slot._held):
        reserved_slot.free(task_id=task_id)


def takes(parent: Connection) -> None:
    """Ask for the only slot as a child of the same worker, send the answer, and live until the test is over."""
    reserved_slot._worker_pid = ask_parent
    parent.send(reserved_slot.take(WORKER, 1, "child"))
    parent.poll(None)


@pytest.fixture
def child() -> Iterator[Forked]:
    """A child process of the same worker that asks for the only slot and sends the answer."""
    with forked(takes) as process:
        yield process


def test_slots_are_as_many_as_said_and_no_more():
    assert [reserved_slot.take(WORKER, 2, task_id) for task_id in ("a", "b", "c")] == [True, True, False]


def test_worker_of_no_slot_for_long_work_gives_none():
    assert reserved_slot.take(WORKER, 0, "a") is False


def test_workers_do_not_take_each_others_slots():
    assert reserved_slot.take(WORKER, 1, "a")
    assert reserved_slot.take("ingest@host", 1, "b")


def test_slot_is_free_again_when_its_task_has_run():
    assert reserved_slot.take(WORKER, 1, "a")
    assert not reserved_slot.take(WORKER, 1, "b")
    task_postrun.send(sender=None, task_id="another")
    assert not reserved_slot.take(WORKER, 1, "b")
    task_postrun.send(sender=None, task_id="a")
    assert reserved_slot.take(WORKER, 1, "b")


@pytest.mark.processes
def test_slot_is_free_again_when_its_process_was_killed(child: Forked):
    assert child.recv() is True
    assert not reserved_slot.take(WORKER, 1, "mine")
    child.process.kill()
    child.process.join()
    assert until(lambda: reserved_slot.take(WORKER, 1, "mine"), 60)


@pytest.mark.processes
def test_process_finds_the_slot_taken_that_another_holds(child: Forked):
    assert child.recv() is True
    with forked(takes) as second:
        assert second.recv() is False
