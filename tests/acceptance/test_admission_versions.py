"""Workers of two releases beside each other: one knows a task with a policy, the other without one, or not at all."""

from collections import Counter
from collections.abc import Iterator

import pytest

from ami.admission.models import Call, Run
from tests.support.admission import QUEUE, Killer, admission_place, effects, task
from tests.support.brokers import ON_FOLDER, ON_RABBITMQ
from tests.support.place import RABBITMQ, Place, until
from tests.support.worker_tasks.admitted import WITHOUT_POLICY

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
BEFORE = {WITHOUT_POLICY: "1"}


@pytest.fixture(params=ON_FOLDER)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with admission_place(request.param) as made:
        yield made


def is_quiet() -> bool:
    return not Call.objects.exists() and not Run.objects.exists()


def ends(place: Place) -> Counter[str]:
    return Counter(line["key"] for line in effects(place, what="end") if "key" in line)


def by(place: Place, worker: str) -> int:
    """How many runs a worker has ended by its log."""
    [process] = [each for each in place.processes if worker in each.argv]
    return process.text.count("finished job")


def test_task_with_a_new_policy_runs_once_beside_the_version_before(place: Place):
    place.worker(QUEUE, "--hostname", "before@%h", **BEFORE)
    place.worker(QUEUE, "--hostname", "after@%h")
    keys = [f"key {number}" for number in range(24)]
    for number, key in enumerate(keys):
        task("changing").delay(key=key, fails=number % 4 == 0, seconds=0.1)
    until(is_quiet, 40, "every call has ended its run")
    assert ends(place) == Counter(keys)
    assert by(place, "before@%h") > 0
    assert by(place, "after@%h") > 0
    task("changing").delay(key=keys[0])
    until(lambda: ends(place)[keys[0]] == 2, 20, "a later call of a key runs")


@pytest.mark.parametrize("place", ON_RABBITMQ, indirect=True)
def test_calls_that_wait_run_when_their_policy_is_taken_away(place: Place):
    for number in range(6):
        task("changing").delay(key="ab"[number % 2], fails=number == 0)
        task("sent").delay(number)
    place.worker(QUEUE, **BEFORE)
    until(is_quiet, 40, "every call has ended its run")
    assert ends(place) == Counter(a=3, b=3)


@pytest.mark.parametrize("broker", ON_FOLDER)
def test_run_of_a_killed_process_of_the_version_before_runs_again(broker: str):
    with admission_place(broker, **BEFORE) as place:
        killer = Killer(place, names=("before@%h",))
        keys = [f"key {number}" for number in range(12)]
        for key in keys:
            task("changing").delay(key=key, seconds=0.5)
        killer.kill_child()
        until(is_quiet, 60, "every call has ended its run")
        assert ends(place) == Counter(keys)
        assert len(effects(place, what="begin")) == len(keys) + 1
        assert place.depth(QUEUE) == 0


@pytest.mark.parametrize("place", [RABBITMQ], indirect=True)
def test_calls_of_a_task_that_no_worker_knows_are_a_finding(place: Place):
    other = place.worker(QUEUE, ANTENNA_EXTRA_TASKS="tests.support.worker_tasks.basic")
    task("sent").delay(1)

    def found() -> list[str]:
        shown = place.queues("check", "--live", check=False).json
        return [each["sentence"] for each in shown if each["name"] == "stranded-calls"]

    [sentence] = until(found, 20)
    assert f"1 calls of {task('sent').name} wait in {QUEUE}" in sentence
    place.worker(QUEUE, "--hostname", "second@%h")
    until(lambda: not found(), 20)
    other.stop()
    until(is_quiet, 40)
    assert len(effects(place, what="end")) == 1
