"""SIGTERM that reaches the children of a pool, as systemd, dumb-init and ``kill -- -PGID`` send it, costs no retry."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from ami.admission.models import Call, Run
from ami.queues import dead_letters
from ami.queues.models import TaskFailure
from tests.support.admission import QUEUE, admission_place, effects, is_there, task
from tests.support.brokers import BROKERS, FOLDER, ON_FOLDER, ON_RABBITMQ, RABBITMQ
from tests.support.place import Place, Process, until
from tests.support.soak import soak

pytestmark = pytest.mark.django_db(transaction=True)

#: A call of ``sent`` is a row, one of ``plain`` is none. Both run at the same time, each with a number of its own.
NUMBERS = {"plain": 1, "sent": 2}


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with admission_place(request.param, ANTENNA_FALLBACK_CONCURRENCY=str(len(NUMBERS))) as made:
        yield made


def send_both(seconds: float) -> dict[int, str]:
    """Publish one call of each kind; return their ids by number."""
    return {number: task(kind).delay(number, seconds=seconds).id for kind, number in NUMBERS.items()}


def begun(place: Place, times: int) -> list[int]:
    """Wait until both tasks have begun so many times, and return the pids of the children that run them."""
    found = {number: partial(effects, place, what="begin", number=number) for number in NUMBERS.values()}
    until(
        lambda: all(len(lines()) >= times for lines in found.values()),
        40,
        lambda: f"begun {times} times: {effects(place)}",
    )
    return [int(lines()[-1]["pid"]) for lines in found.values()]


def assert_begun(place: Place, times: int) -> None:
    """Require that both tasks have begun exactly so many times."""
    begins = Counter(line["number"] for line in effects(place, what="begin"))
    assert begins == Counter(dict.fromkeys(NUMBERS.values(), times))


def letters(place: Place) -> list[Any]:
    with place.app.connection_for_read() as connection:
        return dead_letters.peek(connection, f"{QUEUE}.dlq", limit=100)


def has_ended_well(place: Place) -> None:
    until(lambda: len(effects(place, what="end")) == len(NUMBERS), 30, "the tasks end")
    until(lambda: not Call.objects.exists() and not Run.objects.exists(), 20, "the call is deleted")
    assert letters(place) == []
    assert not TaskFailure.objects.exists(), "a stop is no failure of the task"


def stop_all_at_once(worker: Process, children: list[int]) -> None:
    os.killpg(worker.popen.pid, signal.SIGTERM)


def stop_children_first(worker: Process, children: list[int]) -> None:
    """Let the children end before their parent handles the signal."""
    os.kill(worker.popen.pid, signal.SIGSTOP)
    os.killpg(worker.popen.pid, signal.SIGTERM)
    until(lambda: not any(map(is_there, children)), 10, "the children have ended")
    os.kill(worker.popen.pid, signal.SIGCONT)


SHORT = [(RABBITMQ, stop_children_first), (FOLDER, stop_all_at_once)]
EVERY = [(broker, stop) for broker in BROKERS for stop in (stop_children_first, stop_all_at_once)]


@pytest.mark.parametrize(("place", "stop"), soak(SHORT, EVERY), indirect=["place"])
def test_tasks_of_a_process_group_that_is_stopped_again_and_again_end_well(place: Place, stop: Any):
    send_both(seconds=5)
    for times in range(1, 5):
        worker = place.worker(QUEUE)
        stop(worker, begun(place, times))
        assert worker.popen.wait(30) == 0
    place.worker(QUEUE)
    has_ended_well(place)
    assert_begun(place, 5)


@pytest.mark.parametrize("place", ON_FOLDER, indirect=True)
def test_tasks_of_children_that_alone_get_sigterm_run_again_at_no_cost(place: Place):
    send_both(seconds=5)
    worker = place.worker(QUEUE)
    for times in range(1, 5):
        kill(begun(place, times))
    has_ended_well(place)
    assert_begun(place, 5)
    assert worker.popen.poll() is None


def kill(children: list[int]) -> None:
    for child in children:
        os.kill(child, signal.SIGTERM)


@pytest.mark.parametrize("place", ON_RABBITMQ, indirect=True)
def test_tasks_whose_children_get_sigterm_at_every_start_are_buried_after_ten(place: Place):
    ids = send_both(seconds=30)
    place.worker(QUEUE)
    for times in range(1, 11):
        kill(begun(place, times))
    until(lambda: {letter.task_id for letter in letters(place)} == set(ids.values()), 40, "they are buried")
    assert_begun(place, 10)


@pytest.mark.parametrize("place", ON_FOLDER, indirect=True)
def test_revoked_tasks_that_are_terminated_do_not_run_again(place: Place):
    ids = send_both(seconds=60)
    place.worker(QUEUE)
    children = begun(place, 1)
    place.app.control.revoke(list(ids.values()), terminate=True)
    until(lambda: not any(map(is_there, children)), 20, "their children have ended")
    for kind in NUMBERS:
        task(kind).delay(3)
    until(lambda: len(effects(place, what="end", number=3)) == len(NUMBERS), 30, "the next tasks run")
    until(lambda: not Call.objects.exists() and not Run.objects.exists(), 20, "no call waits")
    assert len(effects(place, what="begin")) == 2 * len(NUMBERS)
    assert letters(place) == []
