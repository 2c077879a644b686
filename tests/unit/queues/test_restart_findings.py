"""What `check --live` says of the restarts that each worker reports."""

from typing import Any

import pytest

from ami.queues.diagnostics.restarts import restarted

MINUTE = 60.0


def findings(**starts: Any) -> list[tuple[str, str]]:
    return [(item.name, item.sentence) for item in restarted({"ingest@a": {"starts": starts}})]


def restart(minutes: float, how: str = "without notice", *tasks: str) -> dict[str, Any]:
    return {"seconds_ago": minutes * MINUTE, "how": how, "tasks": list(tasks)}


def test_three_restarts_within_an_hour_are_one_finding_with_what_ran():
    restarts = [restart(300), restart(59), restart(10, "exit code 75"), restart(5, "without notice", "b", "a")]
    ((name, sentence),) = findings(restarts=restarts, kernel_kills=0)
    assert name == "restarts"
    assert sentence == (
        "ingest@a was started 3 times within an hour after unexpected ends (without notice 2, exit code "
        "75 1), last 5 min ago; 4 times within a day. It was running b, a. Look at its container's exit code and at "
        "its log before the start."
    )


@pytest.mark.parametrize("restarts", [[], [restart(1), restart(2)], [restart(minutes) for minutes in (61, 70, 80, 1)]])
def test_fewer_or_older_restarts_are_no_finding(restarts: list[dict[str, Any]]):
    assert findings(restarts=restarts, kernel_kills=None) == []


def test_processes_that_the_kernel_killed_are_a_finding():
    ((name, sentence),) = findings(restarts=[], kernel_kills=2)
    assert (name, "killed 2 processes in the container of ingest@a" in sentence) == ("kernel-kills", True)


def test_worker_that_cannot_count_its_restarts_is_unseen():
    (item,) = restarted({"ingest@a": {"starts": {"restarts": None, "kernel_kills": 0}}})
    assert (item.level, item.name, "GOVERNOR_STATE_DIR" in item.sentence) == ("unseen", "restarts", True)


def test_worker_without_a_governor_or_of_another_version_is_not_reported():
    assert list(restarted({"ingest@a": {"starts": None}, "old@a": {}})) == []
