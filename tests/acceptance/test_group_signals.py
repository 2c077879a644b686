"""SIGTERM that reaches the children of a pool, as systemd, dumb-init and ``kill -- -PGID`` send it, costs no retry."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from ami.admission.models import Call, Run
from ami.queues import dead_letters
from ami.queues.models import TaskFailure
from tests.support.admission import QUEUE, admission_place, effects, is_there, task
from tests.support.place import FOLDER, RABBITMQ, Place, Process, until

pytestmark = pytest.mark.django_db(transaction=True)

#: A call of ``sent`` is a row, one of ``plain`` is none.
PLAIN, ROW = "plain", "sent"
KINDS = pytest.mark.parametrize(("place", "kind"), [(RABBITMQ, PLAIN), (FOLDER, ROW)], indirect=["place"])


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with admission_place(request.param, ANTENNA_FALLBACK_CONCURRENCY="1") as made:
        yield made


def begun(place: Place, times: int) -> int:
    """Wait for the begin of a task, and return the pid of the child that runs it."""
    until(lambda: len(effects(place, what="begin")) >= times, 40, lambda: f"begun {times} times: {effects(place)}")
    return int(effects(place, what="begin")[-1]["pid"])


def letters(place: Place) -> list[Any]:
    with place.app.connection_for_read() as connection:
        return dead_letters.peek(connection, f"{QUEUE}.dlq", limit=100)


def has_ended_well(place: Place) -> None:
    until(lambda: effects(place, what="end"), 30, "the task ends")
    until(lambda: not Call.objects.exists() and not Run.objects.exists(), 20, "its call is deleted")
    assert letters(place) == []
    assert not TaskFailure.objects.exists(), "a stop is no failure of the task"


def stop_all_at_once(worker: Process, child: int) -> None:
    os.killpg(worker.popen.pid, signal.SIGTERM)


def stop_children_first(worker: Process, child: int) -> None:
    """Let the children end before their parent handles the signal."""
    os.kill(worker.popen.pid, signal.SIGSTOP)
    os.killpg(worker.popen.pid, signal.SIGTERM)
    until(lambda: not is_there(child), 10, "the child has ended")
    os.kill(worker.popen.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("place", "kind", "stop"),
    [
        (RABBITMQ, PLAIN, stop_children_first),
        (RABBITMQ, ROW, stop_all_at_once),
        (FOLDER, PLAIN, stop_all_at_once),
        (FOLDER, ROW, stop_children_first),
    ],
    indirect=["place"],
)
def test_task_of_a_process_group_that_is_stopped_again_and_again_ends_well(place: Place, kind: str, stop: Any):
    task(kind).delay(1, seconds=3)
    for times in range(1, 5):
        worker = place.worker(QUEUE)
        stop(worker, begun(place, times))
        assert worker.popen.wait(30) == 0
    place.worker(QUEUE)
    has_ended_well(place)
    assert len(effects(place, what="begin")) == 5


@KINDS
def test_task_of_a_child_that_alone_gets_sigterm_runs_again_at_no_cost(place: Place, kind: str):
    task(kind).delay(1, seconds=2)
    worker = place.worker(QUEUE)
    for times in range(1, 5):
        os.kill(begun(place, times), signal.SIGTERM)
    has_ended_well(place)
    assert len(effects(place, what="begin")) == 5
    assert worker.popen.poll() is None


@KINDS
def test_task_whose_child_gets_sigterm_at_every_start_is_buried_after_ten(place: Place, kind: str):
    result = task(kind).delay(1, seconds=30)
    place.worker(QUEUE)
    for times in range(1, 11):
        os.kill(begun(place, times), signal.SIGTERM)
    until(lambda: [letter.task_id for letter in letters(place)] == [result.id], 40, "it is buried")
    assert len(effects(place, what="begin")) == 10


@KINDS
def test_revoked_task_that_is_terminated_does_not_run_again(place: Place, kind: str):
    result = task(kind).delay(1, seconds=60)
    place.worker(QUEUE)
    child = begun(place, 1)
    place.app.control.revoke(result.id, terminate=True)
    until(lambda: not is_there(child), 20, "its child has ended")
    task(kind).delay(2)
    until(lambda: effects(place, what="end", number=2), 30, "the next task runs")
    until(lambda: not Call.objects.exists() and not Run.objects.exists(), 20, "no call waits")
    assert len(effects(place, what="begin", number=1)) == 1
    assert letters(place) == []
