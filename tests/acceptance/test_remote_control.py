"""Broadcast remote control keeps the split: a worker consumes its own queue, through one key, in what it holds."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.place import BROKERS, Place, new_place

T = "tests.support.worker_tasks.basic"
INTERACTIVE, HOUSEKEEPING, FALLBACK = "antenna-interactive", "antenna-housekeeping", "antenna"


@pytest.fixture(scope="module", params=BROKERS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Workers of two queues, the first with room for a third process."""
    with new_place("remote-control", request.param) as made:
        made.queues("declare")
        made.environment["ANTENNA_INTERACTIVE_CONTAINER_MEMORY_KIB"] = str(4 * 1024**2)
        made.workers(INTERACTIVE, FALLBACK)
        yield made


def replies(place: Place, command: str, count: int = 2, **arguments: Any) -> dict[str, dict[str, str]]:
    """What each worker replied, by the part of its name before the host."""
    found = place.app.control.broadcast(command, arguments=arguments, reply=True, timeout=20, limit=count)
    return {name.split("@")[0]: reply for each in found for name, reply in each.items()}


def consumed(place: Place) -> dict[str, list[str]]:
    """The queues that each worker consumes."""
    answers = place.app.control.inspect(timeout=20, limit=2).active_queues()
    return {name.split("@")[0]: [queue["name"] for queue in queues] for name, queues in answers.items()}


def test_broadcast_add_consumer_is_refused_except_by_the_queues_own_worker(place: Place):
    said = replies(place, "add_consumer", queue=INTERACTIVE)
    assert said["interactive"] == {"ok": f"add consumer {INTERACTIVE}"}
    assert FALLBACK in said["fallback"]["error"]
    assert "celeryworker_interactive" in said["fallback"]["error"]
    assert set(replies(place, "add_consumer", queue=HOUSEKEEPING)["interactive"]) == {"error"}
    assert consumed(place) == {"interactive": [INTERACTIVE], "fallback": [FALLBACK]}


def test_refusal_is_shown_by_the_command_line(place: Place):
    done = place.celery("control", "--timeout", "2", "add_consumer", "antena-interactive")
    assert done.popen.wait(60) == 0, done.text
    assert done.text.count("Refused") == 2
    assert "Did you mean 'antenna-interactive'?" in done.text


@pytest.mark.parametrize(
    ("command", "arguments", "instead"),
    [
        ("cancel_consumer", {"queue": INTERACTIVE}, "queues pause antenna-interactive"),
        ("pool_grow", {"n": 1}, "queues scale interactive@"),
        ("pool_shrink", {"n": 1}, "queues scale interactive@"),
        ("autoscale", {"max": 3, "min": 1}, "queues scale interactive@"),
    ],
)
def test_command_that_the_worker_would_undo_is_refused(
    place: Place, command: str, arguments: dict[str, Any], instead: str
):
    said = replies(place, command, **arguments)["interactive"]
    assert said.keys() == {"error"}
    assert instead in said["error"]
    assert consumed(place) == {"interactive": [INTERACTIVE], "fallback": [FALLBACK]}
