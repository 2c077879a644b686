"""One slot of a worker stays free of long work, whoever holds the others and however they end."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from celery.signals import task_postrun

from ami.queues import reserve
from tests.support.place import ROOT, until

WORKER = "interactive@host"
CHILD = f"from ami.queues import reserve; print(reserve.take('{WORKER}', 1, 'child'), flush=True); input()"


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A folder of the test's own, and this process as the parent of the worker's children."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(reserve, "_worker_pid", os.getpid)
    yield
    for task_id in list(reserve._held):
        reserve.free(task_id=task_id)


@pytest.fixture
def child(tmp_path: Path):
    """A child process of the same worker that asks for the only slot; its answer is its first line."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


def test_slots_are_as_many_as_said_and_no_more():
    assert [reserve.take(WORKER, 2, task_id) for task_id in ("a", "b", "c")] == [True, True, False]


def test_worker_of_no_slot_for_long_work_gives_none():
    assert reserve.take(WORKER, 0, "a") is False


def test_workers_do_not_take_each_others_slots():
    assert reserve.take(WORKER, 1, "a")
    assert reserve.take("ingest@host", 1, "b")


def test_slot_is_free_again_when_its_task_has_run():
    assert reserve.take(WORKER, 1, "a")
    assert not reserve.take(WORKER, 1, "b")
    task_postrun.send(sender=None, task_id="another")
    assert not reserve.take(WORKER, 1, "b")
    task_postrun.send(sender=None, task_id="a")
    assert reserve.take(WORKER, 1, "b")


def test_slot_is_free_again_when_its_process_was_killed(child: Any):
    assert child.stdout.readline() == b"True\n"
    assert not reserve.take(WORKER, 1, "mine")
    child.kill()
    child.wait()
    assert until(lambda: reserve.take(WORKER, 1, "mine"), 5)


def test_process_finds_the_slot_taken_that_another_holds(child: Any, tmp_path: Path):
    assert child.stdout.readline() == b"True\n"
    second = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        input=b"\n",
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert second.stdout == b"False\n"
