"""Broadcast remote control keeps the split: a worker consumes its own queue, through one key, in what it holds."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.place import BROKERS, Place, new_place, until

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


def test_consumer_added_after_a_rollback_takes_its_key_back(place: Place):
    replies(place, "cancel_consumer", 2, queue=INTERACTIVE)
    until(lambda: consumed(place)["interactive"] == [], what="the consumer is cancelled")
    place.queues("rollback", "--yes")
    before = place.send(f"{T}.succeed", queue=INTERACTIVE)
    assert until(lambda: workers_of(place, before)) == ["fallback"]

    replies(place, "add_consumer", queue=INTERACTIVE)
    until(lambda: INTERACTIVE in consumed(place)["interactive"], what="the consumer is added")
    sent = [place.send(f"{T}.succeed", queue=INTERACTIVE) for _ in range(20)]
    last = place.send(f"{T}.succeed")
    until(lambda: all(workers_of(place, each) for each in (*sent, last)), what="every task ran")
    until(lambda: place.depth(FALLBACK) == place.depth(INTERACTIVE) == 0, what="both queues are empty")
    assert [workers_of(place, each) for each in sent] == [["interactive"]] * 20


def workers_of(place: Place, task_id: str) -> list[str]:
    """Which workers ran a task, each run once, by the part of their names before the host."""
    return [record["worker"].split("@")[0] for record in place.ran("succeed", id=task_id)]


def test_pool_grows_to_what_the_container_holds_and_not_beyond(place: Place):
    destination = [
        name for name in place.app.control.ping(timeout=20, limit=2) for name in name if "interactive" in name
    ]

    def grow(n: int) -> dict[str, str]:
        (reply,) = place.app.control.pool_grow(n, destination=destination, reply=True, timeout=20, limit=1)
        (said,) = reply.values()
        return dict(said)

    assert "holds 3" in grow(2)["error"]
    assert grow(1) == {"ok": "pool will grow"}
    assert "holds 3" in grow(1)["error"]
