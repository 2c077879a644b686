"""The journal: one complete line per finished task, read back whatever a process left behind."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ami.celery.app import PUBLISHED_HEADER
from ami.telemetry import task_log
from ami.topology.router import ORIGIN_HEADER
from config import celery_app

TASK = "ami.main.tasks.purge_old_rows"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(task_log.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def task(headers: Any = None, routing_key: str | None = "antenna-housekeeping", retries: int = 0) -> Any:
    request = SimpleNamespace(
        headers=headers, delivery_info={"routing_key": routing_key}, hostname="housekeeping@host", retries=retries
    )
    return SimpleNamespace(name=TASK, app=celery_app, request=request)


def run(sender: Any, task_id: str = "7", state: str = "SUCCESS") -> None:
    task_log.started(task_id=task_id)
    task_log.finished(sender=sender, task_id=task_id, state=state)


def test_record_has_origin_waiting_time_and_state(folder: Path):
    due = time.time() - 3
    run(task({ORIGIN_HEADER: "beat", PUBLISHED_HEADER: due}, retries=2), state="RETRY")
    (record,) = task_log.read(folder)
    written = {name: record[name] for name in ("task", "id", "queue", "consumed_from", "origin", "worker", "pid")}
    assert written == {
        "task": TASK,
        "id": "7",
        "queue": "antenna-housekeeping",
        "consumed_from": "antenna-housekeeping",
        "origin": "beat",
        "worker": "housekeeping@host",
        "pid": os.getpid(),
    }
    assert (record["state"], record["retries"]) == ("RETRY", 2)
    assert 3 <= record["waited_seconds"] < 60
    assert 0 <= record["ran_seconds"] < 60
    assert record["started_at"] >= due
    assert record["peak_memory_kib"] > 1024


def test_delayed_message_came_from_the_queue_behind_its_28_bits(folder: Path):
    run(task({ORIGIN_HEADER: "person"}, routing_key="0.0.1.0.antenna-interactive"))
    (record,) = task_log.read(folder)
    assert (record["consumed_from"], record["queue"]) == ("antenna-interactive", "antenna-interactive")


@pytest.mark.parametrize("headers", [None, {}])
def test_message_of_another_publisher_has_no_wait_and_a_tasks_origin(folder: Path, headers: Any):
    run(task(headers, routing_key=None))
    (record,) = task_log.read(folder)
    assert (record["waited_seconds"], record["origin"], record["consumed_from"]) == (None, "task", "")


def test_clocks_that_disagree_give_no_negative_wait(folder: Path):
    run(task({PUBLISHED_HEADER: time.time() + 60}))
    (record,) = task_log.read(folder)
    assert record["waited_seconds"] == 0


def test_task_that_never_started_here_leaves_no_line(folder: Path):
    task_log.finished(sender=task(), task_id="8", state="SUCCESS")
    assert list(folder.iterdir()) == []


def test_without_a_folder_nothing_is_written_or_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(task_log.FOLDER_VARIABLE, raising=False)
    run(task())
    assert task_log._started == {}


def test_torn_line_is_passed_over(folder: Path):
    run(task(), "1")
    with (folder / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps({"task": TASK})[:9] + "\n")
    run(task(), "2")
    (folder / "9.jsonl").write_text('{"task": "other", "id": "3"}\n{"task": "cut')
    assert sorted(record["id"] for record in task_log.read(folder)) == ["1", "2", "3"]
