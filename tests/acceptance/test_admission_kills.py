"""Children and workers are killed while tasks with policies run: what holds is seen at their effects."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction

from ami.admission.models import Call, Run
from ami.queues import dead_letters
from ami.queues.models import Worker
from tests.support.admission import NAMES, QUEUE, Killer, admission_place, effects, is_there, most_at_once, task
from tests.support.place import RABBITMQ, Place, until
from tests.support.soak import soak

ROUNDS = soak(4, 60)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(soak(300, 5400))]


class RolledBack(Exception):
    pass


@pytest.fixture
def place() -> Iterator[Place]:
    with admission_place(RABBITMQ) as made:
        yield made


def stage(number: int, committed: set[int]) -> None:
    """Stage one call in a transaction; every second one is rolled back."""
    with suppress(RolledBack), transaction.atomic():
        task("sent").delay(number, seconds=0.05)
        if number % 2:
            raise RolledBack
    if number % 2 == 0:
        committed.add(number)


def test_no_promise_is_broken_by_kills(place: Place):
    """Half of the transactions are rolled back; workers die while they hold the dispatcher's lease, and children."""
    killer, committed, wishes = Killer(place), set[int](), 0
    for turn in range(ROUNDS):
        for number in range(20 * turn, 20 * turn + 20):
            stage(number, committed)
            task("limited").delay(key="a", number=number, seconds=0.1)
            wishes += 1
            for key in "ab":
                task("once").delay(key=key, wish=wishes, seconds=0.3)
        killer.kill_child()
        if turn % 2:
            killer.kill_worker(turn // 2 % 2)
    until(_is_quiet, 60 + 2 * ROUNDS, _left)
    lines = effects(place)
    # A call that ran at each of several kills is taken for the cause of them: it is a letter, and not lost.
    letters = _buried(place)
    buried = [line for line in lines if line["id"] in letters]
    ended = [line for line in lines if line["what"] == "end"]
    done = [*ended, *buried]
    assert {line["number"] for line in done if "key" not in line} == committed, "exactly the committed calls ran"
    assert {line["number"] for line in done if "key" in line and "number" in line} == set(range(20 * ROUNDS))
    assert most_at_once(_of(lines, "wish"), "key", killer.dead) == 1, "never two runs of one key"
    assert most_at_once([line for line in _of(lines, "number") if "key" in line], "key", killer.dead) <= 2
    for key in "ab":
        of_key = [line["wish"] for line in _of(ended, "wish") if line["key"] == key]
        assert of_key[-1] == wishes or wishes in {line["wish"] for line in _of(buried, "wish")}, (
            "the last wish ran last"
        )


def test_calls_of_a_key_run_in_order_over_failures_and_kills(place: Place):
    killer, keys, numbers = Killer(place), [f"key {number}" for number in range(soak(8, 50))], soak(8, 200)
    for number in range(numbers):
        for key in keys:
            fails = killer.random.choice((0, 0, 0, 1, 2))
            task("ordered").delay(key=key, number=number, fails=fails, seconds=0.02)
    for turn in range(soak(3, 40)):
        killer.kill_child()
        if turn % 2:
            killer.kill_worker(turn // 2 % 2)
    until(_is_quiet, 120 + 4 * numbers, _left)
    for key in keys:
        ended = [line["number"] for line in effects(place, what="end", key=key)]
        # A process that dies after its effect and before its commit does it again.
        assert [number for number, before in zip(ended, [None, *ended], strict=False) if number != before] == list(
            range(numbers)
        )
        begun = [line["number"] for line in effects(place, what="begin", key=key)]
        assert begun == sorted(begun)


def test_every_argument_of_groups_is_handled_and_the_wrong_one_is_alone(place: Place):
    killer, calls = Killer(place), soak(600, 100_000)
    keys, wrong = calls // 100, calls // 2
    for number in range(calls):
        given = -number if number == wrong else number
        # Ten of a key at a time, so that they are of one group however long it takes to stage them all.
        task("grouped").delay(key=f"key {number // 10 % keys}", numbers=[given], seconds=0.05)
        if number % (calls // soak(4, 40)) == 0 and number:
            killer.kill_child()
    killer.kill_worker(0)
    until(_is_quiet, 120 + calls / 50, _left)
    ended = effects(place, what="end")
    handled = Counter(number for line in ended for number in line["numbers"])
    assert set(handled) == set(range(calls)) - {wrong}
    twice = {number for number, count in handled.items() if count > 1}
    of_the_dead = {number for line in ended if line["pid"] in killer.dead for number in line["numbers"]}
    assert twice <= of_the_dead, "a number was handled again without a kill"
    assert len(ended) < calls / 3, "calls of a key ran together, fewer where a slow machine stages them slowly"
    until(lambda: place.depth(f"{QUEUE}.dlq") == 1, 20)
    alone = [line["numbers"] for line in effects(place, what="begin") if -wrong in line["numbers"]]
    assert alone[-1] == [-wrong]


def test_permits_of_a_frozen_worker_are_freed_after_its_end(place: Place):
    """Its processes are ended before another worker runs what it ran."""
    frozen = place.worker(QUEUE, "--hostname", NAMES[0])
    for number in range(2):
        task("limited").delay(key="a", number=number, seconds=90)
    until(lambda: len(effects(place, what="begin")) == 2, 30)
    pids = [line["pid"] for line in effects(place)]
    until(lambda: any(row.children for row in Worker.objects.all()), 30)
    place.worker(QUEUE, "--hostname", NAMES[1])
    task("limited").delay(key="a", number=2, seconds=0.1)
    for pid in (frozen.popen.pid, *pids):
        os.kill(pid, signal.SIGSTOP)
    until(lambda: len(effects(place, what="begin")) > 2, 60, "a permit is free")
    assert not any(is_there(pid) for pid in pids), "the frozen processes were ended first"


def _buried(place: Place) -> set[str]:
    with place.app.connection_for_read() as connection:
        return {letter.task_id for letter in dead_letters.peek(connection, f"{QUEUE}.dlq", limit=100)}


def _is_quiet() -> bool:
    return not Call.objects.exists() and not Run.objects.exists()


def _left() -> str:
    return f"calls: {list(Call.objects.values()[:5])}, runs: {list(Run.objects.values()[:5])}"


def _of(lines: list[dict[str, Any]], field: str) -> list[dict[str, Any]]:
    return [line for line in lines if field in line]
