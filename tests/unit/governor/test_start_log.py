"""The log of a worker's starts: which of them nobody asked for."""

import json
from pathlib import Path

import pytest

from ami.governor.crash_log import Entry
from ami.governor.start_log import ASKED, DAY_SECONDS, KEPT, WITHOUT_NOTICE, StartLog

NOW = 1_000_000.0


def started(folder: Path, at: float, *running: Entry) -> StartLog:
    return StartLog(folder, running, at)


def hows(log: StartLog) -> list[str]:
    return [each.how for each in log.restarts]


def test_first_start_and_one_after_a_request_to_stop_are_no_restarts(tmp_path: Path) -> None:
    first = started(tmp_path, NOW)
    first.mark_ended(ASKED)
    first.mark_exit(1)  # However it ends then.
    second = started(tmp_path, NOW + 1)
    assert (first.restarts, second.restarts) == ([], [])
    second.mark_exit(0)  # A shutdown by remote control.
    assert started(tmp_path, NOW + 2).restarts == []


def test_start_after_a_kill_names_what_ran_the_largest_first(tmp_path: Path) -> None:
    started(tmp_path, NOW)
    ran = [Entry(pid, task, str(pid), NOW, kib) for pid, task, kib in ((1, "a", 5), (2, "b", 9), (3, "a", 1))]
    log = started(tmp_path, NOW + 5, *ran)
    (one,) = log.info(NOW + 15)["restarts"]
    assert one == {"seconds_ago": 10.0, "how": WITHOUT_NOTICE, "tasks": ["b", "a"]}


def test_exit_for_memory_is_a_restart_without_tasks(tmp_path: Path) -> None:
    started(tmp_path, NOW).mark_exit(75)
    log = started(tmp_path, NOW + 1, Entry(1, "a", "1", NOW, 5))
    assert [(each.how, each.tasks) for each in log.restarts] == [("exit code 75", ())]


def test_file_is_bounded_in_number_and_in_time(tmp_path: Path) -> None:
    for second in range(3 * KEPT):
        started(tmp_path, NOW + second)
    assert len(json.loads((tmp_path / "starts.json").read_text())["restarts"]) == KEPT
    log = started(tmp_path, NOW + 2 * DAY_SECONDS)
    assert hows(log) == [WITHOUT_NOTICE]
    assert log.info(NOW + 4 * DAY_SECONDS)["restarts"] == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"started_at": 1, "ended": "asked", "restarts": [{"at": "x"}]}'])
def test_torn_or_foreign_file_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "starts.json").write_text(content)
    assert started(tmp_path, NOW).restarts == []


def test_folder_that_cannot_be_written_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        started(tmp_path / "nowhere", NOW)
