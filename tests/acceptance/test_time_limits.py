"""Time limits of calls and tasks in a real worker, whose queue has longer ones."""

import time
from collections.abc import Iterator

import pytest

from ami.admission.models import Run
from ami.queues import dead_letters
from tests.support.admission import QUEUE, admission_place, effects, task
from tests.support.place import ON_FOLDER, Place, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=ON_FOLDER)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with admission_place(request.param) as made:
        yield made


def buried(place: Place) -> set[str]:
    with place.app.connection_for_read() as connection:
        return {letter.task_id for letter in dead_letters.peek(connection, f"{QUEUE}.dlq", limit=100)}


def test_time_limit_of_a_call_holds_below_the_soft_one_of_its_queue(place: Place):
    """``deaf`` ends at the hard limit, as a call with a row and without one; the others at the soft one before it."""
    place.worker(QUEUE)
    calls = {
        task(name).apply_async(kwargs={"number": number, "seconds": 60}, **options).id: name
        for number, (name, options) in enumerate(
            [
                ("plain", {"time_limit": 2}),
                ("sent", {"time_limit": 2}),
                ("deaf", {"time_limit": 2}),
                ("deaf_row", {"time_limit": 2}),
            ]
        )
    }
    until(lambda: buried(place) == set(calls), 40, lambda: f"{calls} {buried(place)} {effects(place)}")
    until(lambda: not Run.objects.exists(), 20)
    for task_id, name in calls.items():
        [begin] = effects(place, id=task_id, what="begin")
        soft = [line["at"] - begin["at"] for line in effects(place, id=task_id, what="soft limit")]
        assert soft == ([pytest.approx(1.6, abs=0.5)] if name.startswith("deaf") else [])
        assert not effects(place, id=task_id, what="end"), "it was not ended"


def test_soft_limit_of_a_call_above_the_hard_one_of_its_queue_is_reached(place: Place):
    place.worker(QUEUE, ANTENNA_FALLBACK_SOFT_TIME_LIMIT_SECONDS="2", ANTENNA_FALLBACK_HARD_TIME_LIMIT_SECONDS="3")
    began = time.monotonic()
    result = task("deaf").apply_async(kwargs={"number": 1, "seconds": 60}, soft_time_limit=4)
    until(lambda: buried(place) == {result.id}, 40)
    [begin], [soft] = (effects(place, id=result.id, what=what) for what in ("begin", "soft limit"))
    assert soft["at"] - begin["at"] == pytest.approx(4, abs=1)
    assert time.monotonic() - began >= 6
