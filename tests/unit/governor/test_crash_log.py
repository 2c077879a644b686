"""Who ran what when the worker died: the slates, the board that reads them, and whom it leads to suspect."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ami.governor.crash_log import RUNS_BYTES, SIZE_BYTES, Board, Entry, Slate, Suspects
from tests.support.governor.forked_processes import forked

MIB = 1024


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "worker@host")


def write(board: Board, pid: int, task: str, task_id: str, kib: int | None = 0) -> Path:
    """Leave what a child would have left that was killed while it ran ``task``."""
    path = board.folder / f"{pid}-{pid}.run"
    line = f"R 1.5 {task_id} {task}".encode()
    path.write_bytes(line if kib is None else line.ljust(RUNS_BYTES) + str(kib).encode().ljust(SIZE_BYTES))
    return path


def test_what_ran_at_a_sudden_death_is_found_largest_first(board: Board) -> None:
    for pid, kib in ((11, 300), (12, 900), (13, 0)):
        write(board, pid, "ml.detect", f"id-{pid}", kib)
    assert [(entry.pid, entry.id, entry.kib) for entry in board.left_behind()] == [
        (12, "id-12", 900),
        (11, "id-11", 300),
        (13, "id-13", 0),
    ]
    assert board.left_behind() == []


def test_the_next_worker_reads_what_a_child_and_its_parent_wrote(board: Board) -> None:
    slate = Slate(board.folder)
    slate.begins("jobs.save", "id-1")
    board.size(os.getpid(), 700 * MIB)
    (entry,) = board.running()
    assert (entry.pid, entry.task, entry.id, entry.kib) == (os.getpid(), "jobs.save", "id-1", 700 * MIB)
    board.size(os.getpid(), 5)
    assert Board(board.folder).left_behind() == [Entry(entry.pid, "jobs.save", "id-1", entry.started_at, 5)]


def test_the_size_of_one_task_is_not_that_of_the_next(board: Board) -> None:
    slate = Slate(board.folder)
    slate.begins("jobs.save", "id-1")
    board.size(os.getpid(), 700 * MIB)
    slate.begins("ml.detect", "id-2")
    assert [(entry.task, entry.kib) for entry in board.running()] == [("ml.detect", 0)]


def test_a_task_that_has_ended_is_not_found(board: Board) -> None:
    slate = Slate(board.folder)
    slate.begins("jobs.save", "id-1")
    slate.ended()
    assert list(board.running()) == []
    assert board.left_behind() == []


def test_a_name_that_is_longer_than_the_record_is_cut_and_still_found(board: Board) -> None:
    Slate(board.folder).begins("ä" * RUNS_BYTES, "id-1")
    board.size(os.getpid(), 8)
    (entry,) = board.left_behind()
    assert (entry.id, entry.kib) == ("id-1", 8)
    assert entry.task.startswith("äää")


def test_a_worker_that_was_asked_to_stop_suspects_nobody_and_the_one_after_it_does_again(board: Board) -> None:
    write(board, 11, "ml.detect", "id-11")
    board.end()
    after = Board(board.folder)
    assert after.left_behind() == []
    write(after, 12, "ml.detect", "id-12")
    assert [entry.id for entry in Board(board.folder).left_behind()] == ["id-12"]


@pytest.mark.parametrize(
    "content",
    [b"", b"R", b"\xff\xfe\0\0", b"R soon id-1 ml.detect".ljust(RUNS_BYTES) + b"1", b"-".ljust(RUNS_BYTES) + b"1"],
    ids=["empty", "short", "binary", "no time", "idle"],
)
def test_a_file_that_is_torn_or_foreign_is_ignored_and_removed(board: Board, content: bytes) -> None:
    (board.folder / "11-11.run").write_bytes(content)
    torn = write(board, 12, "ml.detect", "id-12", kib=None)
    foreign = board.folder / "notes.run"
    foreign.write_bytes(content)
    write(board, 13, "ml.detect", "id-13")
    assert [entry.id for entry in board.running()] == ["id-13"]
    assert [entry.id for entry in board.left_behind()] == ["id-13"]
    assert not torn.exists()
    assert not foreign.exists()


def test_files_of_children_that_are_gone_are_removed_and_foreign_ones_with_them(board: Board) -> None:
    stays, gone = write(board, 11, "ml.detect", "id-11"), write(board, 12, "ml.detect", "id-12")
    foreign = board.folder / "notes.run"
    foreign.touch()
    board.size(12, 5)
    board.forget({11})
    assert (stays.exists(), gone.exists(), foreign.exists()) == (True, False, False)
    write(board, 12, "jobs.save", "id-13")
    board.size(12, 6)
    assert {entry.id: entry.kib for entry in board.running()} == {"id-11": 0, "id-13": 6}


def test_the_size_of_a_child_that_has_run_nothing_is_nobodys(board: Board) -> None:
    board.size(11, 900)
    assert list(board.folder.glob("*.run")) == []


@pytest.mark.processes
def test_another_live_worker_cannot_take_the_folder(board: Board) -> None:
    with forked(lambda told: told.send(_taken(board.folder))) as child:
        assert child.recv() == "BlockingIOError"


@pytest.mark.processes
def test_a_child_that_outlives_its_parent_does_not_keep_the_folder(tmp_path: Path) -> None:
    def parent(told: Any) -> None:
        Board(tmp_path)
        survivor = os.fork()
        if survivor:
            told.send(survivor)
            return
        told.poll(30)  # Until the test ends its side.

    with forked(parent) as child:
        survivor = child.recv()
        child.process.join()
        os.kill(survivor, 0)
        assert _taken(tmp_path) == "taken"


def _taken(folder: Path) -> str:
    try:
        Board(folder)
    except OSError as error:
        return type(error).__name__
    return "taken"


# --- suspects ---------------------------------------------------------------------------------------------------------


def entry(task_id: str, kib: int = 300 * MIB) -> Entry:
    return Entry(11, "ml.detect", task_id, 1.5, kib)


def test_the_second_death_convicts_with_a_sentence_and_the_first_only_suspects(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path)
    suspects.accuse([entry("a"), entry("b")])
    assert suspects.open == {"a", "b"}
    assert suspects.convicted("a") is None
    Suspects(tmp_path).accuse([entry("a", 900 * MIB)])
    later = Suspects(tmp_path)
    assert later.open == {"b"}
    assert later.convicted("b") is None
    assert later.convicted("c") is None
    sentence = later.convicted("a")
    assert sentence is not None
    assert sentence.startswith("ml.detect[a] was running each of the 2 times this worker was killed at once")
    assert "900 MiB" in sentence


def test_who_ended_without_taking_anybody_along_starts_anew(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path)
    suspects.accuse([entry("a"), entry("b")])
    suspects.acquit("a")
    suspects.acquit("never seen")
    assert Suspects(tmp_path).open == {"b"}
    suspects.accuse([entry("a")])
    assert suspects.convicted("a") is None


def test_suspicion_lapses_and_conviction_does_not(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path)
    suspects.accuse([entry("a"), entry("b")])
    suspects.accuse([entry("a")])
    suspects.lapse()
    for known in (suspects, Suspects(tmp_path)):
        assert known.open == frozenset()
        assert known.convicted("a")


def test_only_the_newest_are_remembered(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path)
    for number in range(Suspects.KEPT + 5):
        suspects.accuse([entry(f"id-{number}")])
    suspects.accuse([entry("id-5")])  # The oldest that is left, and now the newest.
    suspects.accuse([entry("one more")])
    known = Suspects(tmp_path)
    assert len(json.loads((tmp_path / "suspects.json").read_text())) == Suspects.KEPT
    assert known.convicted("id-5")
    assert "id-6" not in known.open
    assert {"id-7", "one more"} <= known.open


@pytest.mark.parametrize(
    "content", [b"", b'{"a": {"deaths"', b"\xff\xfe", b"[1]", b"null", b'{"a": 2}', b'{"a": {"task": "ml.detect"}}']
)
def test_a_file_of_suspects_that_is_torn_or_foreign_suspects_nobody(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "suspects.json").write_bytes(content)
    suspects = Suspects(tmp_path)
    assert suspects.open == frozenset()
    assert suspects.convicted("a") is None
    suspects.accuse([entry("a")])
    assert Suspects(tmp_path).open == {"a"}


def test_suspects_are_kept_in_memory_when_the_disk_refuses_them(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path / "gone")
    suspects.accuse([entry("a")])
    assert suspects.open == {"a"}
