"""What is published at the bounds runs in a real worker, and a task that may not publish what follows is not lost."""

from collections.abc import Iterator
from typing import Any

import pytest

from ami.admission.models import Run
from ami.celery.publish_bounds import MAX_BODY_DEPTH
from ami.celery.task_message import MAX_BODY_BYTES
from ami.queues import dead_letters
from ami.queues.models import TaskFailure
from tests.support.admission import QUEUE, admission_place, effects, task
from tests.support.place import BROKERS, ON_FOLDER, RABBITMQ, Place, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with admission_place(getattr(request, "param", RABBITMQ)) as made:
        yield made


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("place", BROKERS, indirect=True)
def test_largest_and_deepest_bodies_run(place: Place):
    place.worker(QUEUE)
    large, deep = "x" * (MAX_BODY_BYTES - 1000), nested(MAX_BODY_DEPTH - 5)
    ids = [task(kind).delay(number).id for kind in ("plain", "sent") for number in (large, deep)]
    until(lambda: all(place.ran("", id=task_id, state="SUCCESS") for task_id in ids), 40)


@pytest.mark.parametrize("place", ON_FOLDER, indirect=True)
def test_task_that_goes_on_with_what_no_worker_takes_is_buried_as_it_was(place: Place):
    place.worker(QUEUE)
    ids = {task(kind).delay(number=7).id for kind in ("growing", "growing_row")}
    with place.app.connection_for_read() as connection:
        until(lambda: len(dead_letters.peek(connection, f"{QUEUE}.dlq", limit=100)) >= len(ids), 40)
        found = dead_letters.peek(connection, f"{QUEUE}.dlq", limit=100)
    assert len(found) == len(ids)
    assert {letter.task_id for letter in found} == ids
    until(lambda: not Run.objects.filter(state=Run.State.RUNNING).exists(), 20)
    for task_id in ids:
        assert len(effects(place, what="begin", id=task_id)) == 1
        failure = TaskFailure.objects.filter(task_id=task_id)
        failed = until(failure.first, 20, "its failure is on record")
        assert failed.exception.endswith("MessageRefused")
        assert "its body has 52428" in failed.message or "its body has 52429" in failed.message
