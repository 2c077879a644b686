"""The run records of the children, and the run log of the worker that reads them after a crash."""

import os
from pathlib import Path
from typing import Any

import pytest

from ami.governor.crash_log import RUNS_BYTES, SIZE_BYTES, Entry, RunLog, RunRecord
from tests.support.governor.forked_processes import forked

MIB = 1024


@pytest.fixture
def run_log(tmp_path: Path) -> RunLog:
    return RunLog(tmp_path / "worker@host")


def write(run_log: RunLog, pid: int, task: str, task_id: str, kib: int | None = 0) -> Path:
    """Leave what a child would have left that was killed while it ran ``task``."""
    path = run_log.folder / f"{pid}-{pid}.run"
    line = f"R 1.5 {task_id} {task}".encode()
    path.write_bytes(line if kib is None else line.ljust(RUNS_BYTES) + str(kib).encode().ljust(SIZE_BYTES))
    return path


def test_tasks_running_at_a_crash_are_found_largest_first(run_log: RunLog) -> None:
    for pid, kib in ((11, 300), (12, 900), (13, 0)):
        write(run_log, pid, "ml.detect", f"id-{pid}", kib)
    assert [(entry.pid, entry.id, entry.kib) for entry in run_log.tasks_running_at_crash()] == [
        (12, "id-12", 900),
        (11, "id-11", 300),
        (13, "id-13", 0),
    ]
    assert run_log.tasks_running_at_crash() == []


def test_next_worker_reads_what_child_and_parent_wrote(run_log: RunLog) -> None:
    record = RunRecord(run_log.folder)
    record.task_started("jobs.save", "id-1")
    run_log.record_size(os.getpid(), 700 * MIB)
    (entry,) = run_log.running()
    assert (entry.pid, entry.task, entry.id, entry.kib) == (os.getpid(), "jobs.save", "id-1", 700 * MIB)
    run_log.record_size(os.getpid(), 5)
    assert RunLog(run_log.folder).tasks_running_at_crash() == [
        Entry(entry.pid, "jobs.save", "id-1", entry.started_at, 5)
    ]


def test_the_size_of_one_task_is_not_that_of_the_next(run_log: RunLog) -> None:
    record = RunRecord(run_log.folder)
    record.task_started("jobs.save", "id-1")
    run_log.record_size(os.getpid(), 700 * MIB)
    record.task_started("ml.detect", "id-2")
    assert [(entry.task, entry.kib) for entry in run_log.running()] == [("ml.detect", 0)]


def test_a_task_that_has_ended_is_not_found(run_log: RunLog) -> None:
    record = RunRecord(run_log.folder)
    record.task_started("jobs.save", "id-1")
    record.task_ended()
    assert list(run_log.running()) == []
    assert run_log.tasks_running_at_crash() == []


def test_a_name_that_is_longer_than_the_record_is_cut_and_still_found(run_log: RunLog) -> None:
    RunRecord(run_log.folder).task_started("ä" * RUNS_BYTES, "id-1")
    run_log.record_size(os.getpid(), 8)
    (entry,) = run_log.tasks_running_at_crash()
    assert (entry.id, entry.kib) == ("id-1", 8)
    assert entry.task.startswith("äää")


def test_worker_that_was_asked_to_stop_leaves_no_suspects(run_log: RunLog) -> None:
    write(run_log, 11, "ml.detect", "id-11")
    run_log.mark_stopping()
    after = RunLog(run_log.folder)
    assert after.tasks_running_at_crash() == []
    write(after, 12, "ml.detect", "id-12")
    assert [entry.id for entry in RunLog(run_log.folder).tasks_running_at_crash()] == ["id-12"]


@pytest.mark.parametrize(
    "content",
    [b"", b"R", b"\xff\xfe\0\0", b"R soon id-1 ml.detect".ljust(RUNS_BYTES) + b"1", b"-".ljust(RUNS_BYTES) + b"1"],
    ids=["empty", "short", "binary", "no time", "idle"],
)
def test_a_file_that_is_torn_or_foreign_is_ignored_and_removed(run_log: RunLog, content: bytes) -> None:
    (run_log.folder / "11-11.run").write_bytes(content)
    torn = write(run_log, 12, "ml.detect", "id-12", kib=None)
    foreign = run_log.folder / "notes.run"
    foreign.write_bytes(content)
    write(run_log, 13, "ml.detect", "id-13")
    assert [entry.id for entry in run_log.running()] == ["id-13"]
    assert [entry.id for entry in run_log.tasks_running_at_crash()] == ["id-13"]
    assert not torn.exists()
    assert not foreign.exists()


def test_files_of_ended_children_and_foreign_files_are_removed(run_log: RunLog) -> None:
    alive, ended = write(run_log, 11, "ml.detect", "id-11"), write(run_log, 12, "ml.detect", "id-12")
    foreign = run_log.folder / "notes.run"
    foreign.touch()
    run_log.record_size(12, 5)
    run_log.remove_ended({11})
    assert (alive.exists(), ended.exists(), foreign.exists()) == (True, False, False)
    write(run_log, 12, "jobs.save", "id-13")
    run_log.record_size(12, 6)
    assert {entry.id: entry.kib for entry in run_log.running()} == {"id-11": 0, "id-13": 6}


def test_size_of_a_child_that_ran_no_task_is_not_written(run_log: RunLog) -> None:
    run_log.record_size(11, 900)
    assert list(run_log.folder.glob("*.run")) == []


@pytest.mark.processes
def test_another_live_worker_cannot_take_the_folder(run_log: RunLog) -> None:
    with forked(lambda pipe: pipe.send(_taken(run_log.folder))) as child:
        assert child.recv() == "BlockingIOError"


@pytest.mark.processes
def test_a_child_that_outlives_its_parent_does_not_keep_the_folder(tmp_path: Path) -> None:
    def parent(pipe: Any) -> None:
        RunLog(tmp_path)
        survivor = os.fork()
        if survivor:
            pipe.send(survivor)
            return
        pipe.poll(30)  # Until the test ends its side.

    with forked(parent) as child:
        survivor = child.recv()
        child.process.join()
        os.kill(survivor, 0)
        assert _taken(tmp_path) == "taken"


def _taken(folder: Path) -> str:
    try:
        RunLog(folder)
    except OSError as error:
        return type(error).__name__
    return "taken"
