"""What becomes of a message: acknowledged, retried, or in its queue's dead letters; never lost, never looping."""

import time
from collections import Counter

import pytest

from ami.queues import dead_letters
from tests.support.place import BROKERS, Place, Process, new_place, until
from tests.support.soak import soak

T = "tests.support.worker_tasks.basic"
FALLBACK = "antenna"


@pytest.fixture(scope="module", params=BROKERS)
def early(request: pytest.FixtureRequest):
    """A place to which no worker has come yet, and the ids of a delayed task and of an expired one."""
    with new_place("delivery", request.param) as place:
        delayed = place.send(f"{T}.succeed", countdown=2)
        expired = place.send(f"{T}.succeed", expires=1)
        expired_at = time.time() + 1.2
        until(lambda: time.time() > expired_at)
        yield place, delayed, expired


@pytest.fixture(scope="module")
def shared(early: tuple[Place, str, str]):
    """One worker of the fallback queue for the tests that do not disturb it."""
    return early[0], early[0].worker(FALLBACK)


def letters(place: Place, task_id: str | None = None) -> list[dead_letters.DeadLetter]:
    with place.app.connection_for_read() as connection:
        found = dead_letters.peek(connection, f"{FALLBACK}.dlq", limit=100)
    return [letter for letter in found if task_id in (None, letter.task_id)]


def buried(place: Place, task_id: str) -> dead_letters.DeadLetter:
    return until(lambda: letters(place, task_id), what=f"{task_id} is buried")[0]


def test_task_that_failed_after_two_countdown_retries_is_in_its_dead_letters(shared: tuple[Place, Process]):
    place, _ = shared
    task_id = place.send(f"{T}.fail_after_retries")
    letter = buried(place, task_id)
    assert (letter.retries, letter.reason) == (2, "rejected")
    assert len(place.ran("fail_after_retries", id=task_id)) == 3


def test_countdown_of_half_a_second_works(shared: tuple[Place, Process]):
    place, _ = shared
    task_id = place.send(f"{T}.succeed", countdown=0.5)
    assert until(lambda: place.ran("succeed", id=task_id, state="SUCCESS"))


def test_delayed_task_never_starts_early(shared: tuple[Place, Process]):
    place, _ = shared
    sent = time.time()
    task_id = place.send(f"{T}.succeed", countdown=1.5)
    record = until(lambda: place.ran("succeed", id=task_id))[0]
    assert record["started_at"] - sent >= 1.5


def test_memory_error_fails_its_task_and_not_the_worker(shared: tuple[Place, Process]):
    place, worker = shared
    task_id = place.send(f"{T}.run_out_of_memory")
    assert buried(place, task_id).task == f"{T}.run_out_of_memory"
    after = place.send(f"{T}.succeed")
    until(lambda: place.ran("succeed", id=after, state="SUCCESS"))
    assert worker.popen.poll() is None


def test_hard_time_limit_is_buried_after_its_retries_not_run_to_the_delivery_limit(shared: tuple[Place, Process]):
    place, worker = shared
    task_id = place.send(f"{T}.run_too_long")
    letter = buried(place, task_id)
    assert (letter.retries, letter.reason) == (1, "rejected")
    assert worker.text.count(f"exceeded for {T}.run_too_long[{task_id}]") >= 2
    assert place.depth(FALLBACK) == 0


def test_lost_child_is_retried_then_buried(shared: tuple[Place, Process]):
    place, _ = shared
    letter = buried(place, place.send(f"{T}.lose_the_child"))
    assert (letter.task, letter.retries) == (f"{T}.lose_the_child", 1)


def test_dead_letter_can_be_listed_replayed_and_discarded(shared: tuple[Place, Process]):
    place, _ = shared
    place.queues(
        "dead-letters", f"{FALLBACK}.dlq", "--discard", "--yes"
    )  # A replay of the other tests' letters takes seconds.
    task_id, other_id = place.send(f"{T}.fail"), place.send(f"{T}.fail")
    buried(place, other_id)
    buried(place, task_id)
    listed = place.queues("dead-letters", f"{FALLBACK}.dlq").json
    assert (task_id, f"{T}.fail") in [(row["task_id"], row["task"]) for row in listed]
    assert letters(place, task_id), "listing leaves the letter where it was"
    before = {letter.task_id for letter in letters(place)}
    assert before == {task_id, other_id}
    place.queues("dead-letters", f"{FALLBACK}.dlq", "--replay")
    until(lambda: len(place.ran("fail", id=task_id)) == 2, what=lambda: f"replayed once, ran {place.ran('fail')}")
    until(lambda: {letter.task_id for letter in letters(place)} == before, what="all that was replayed failed again")
    assert place.queues("dead-letters", f"{FALLBACK}.dlq", "--discard", "--yes").json["discarded"] == 2
    assert letters(place) == []


def test_countdown_published_before_any_worker_ever_started_arrives(
    early: tuple[Place, str, str], shared: tuple[Place, Process]
):
    place, delayed, expired = early
    until(lambda: place.ran("succeed", id=delayed))
    assert place.ran("succeed", id=expired) == [], "an expired tick does not run"
    assert letters(place, expired) == [], "and is not buried either"


def test_killed_worker_loses_nothing(place: Place):
    worker = place.worker(FALLBACK)
    task_id = place.send(f"{T}.hold", 2)
    until(lambda: place.depth(FALLBACK) == 0)
    worker.kill()
    place.worker(FALLBACK)
    assert until(lambda: place.ran("hold", state="SUCCESS"))[0]["id"] == task_id


def test_stopped_worker_finishes_started_tasks_and_ends_promptly(place: Place):
    sent = []
    for stops in range(1, soak(1, 20) + 1):
        sent += [place.send(f"{T}.succeed") for _ in range(60)]
        worker = place.worker(FALLBACK)
        until(lambda enough=30 * stops: len(place.ran("succeed")) > enough)
        assert worker.stop() == 0
    place.worker(FALLBACK)
    until(lambda: {record["id"] for record in place.ran("succeed")} >= set(sent))
    assert max(Counter(record["id"] for record in place.ran("succeed")).values()) == 1
