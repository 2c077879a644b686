"""Dead letters are collected, each death once, by whoever is there; replayed, they come back to their rows."""

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Producer

from ami.celery.app import PUBLISH_ID_HEADER
from ami.queues.models import Letter, TaskFailure
from tests.support.brokers import ON_RABBITMQ
from tests.support.place import BROKERS, Place, new_place, until
from tests.support.soak import soak

T = "tests.support.worker_tasks.basic"
QUEUE, DEAD = "antenna-interactive", "antenna-interactive.dlq"
LETTERS, KILLS = soak(500, 5_000), soak(4, 50)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=BROKERS)
def place(request: pytest.FixtureRequest, settings: Any) -> Iterator[Place]:
    settings.ANTENNA_COLLECT_LETTERS = True
    with new_place("letters", request.param) as made:
        made.use_test_database()
        made.environment["ANTENNA_COLLECT_LETTERS"] = "1"
        made.queues("declare")
        yield made


@pytest.mark.parametrize("place", ON_RABBITMQ, indirect=True)
def test_letter_is_collected_with_its_cause_replayed_and_comes_back(place: Place):
    place.worker(QUEUE)
    task = place.send(f"{T}.fail", queue=QUEUE)
    until(lambda: Letter.objects.filter(task_id=task).exists(), seconds=30, what="it is collected")
    assert place.depth(DEAD) == 0
    until(lambda: TaskFailure.objects.filter(task_id=task).exists(), seconds=10, what="its cause is on record")
    (shown,) = place.queues("dead-letters", DEAD).json
    assert shown["task_id"] == task
    assert "ValueError: at once" in shown["detail"]
    assert place.queues("dead-letters").json[DEAD] == 1
    assert {row["name"] for row in place.queues("check", "--live", check=False).json} >= {"dead-letters"}

    assert place.queues("dead-letters", DEAD, "--replay", "--yes").json == {"replayed": 1}
    # It is routed by its name: no worker reads that queue yet.
    place.worker("antenna")
    until(lambda: Letter.objects.get().died == 2, seconds=30, what="it has died again, in its row")
    assert Letter.objects.get().state == "dead"
    assert place.queues("dead-letters", "antenna.dlq", "--discard", "--yes").json == {"discarded": 1}
    assert sum(place.queues("dead-letters").json.values()) == 0


def test_collectors_that_are_killed_lose_no_letter_and_write_none_twice(place: Place):
    """Two at a time; some end themselves between the commit and the acknowledgement."""
    sent = Counter[str]()
    with place.app.connection_for_write() as connection, connection.channel() as channel:
        producer = Producer(channel)
        for number in range(LETTERS):
            bury(producer, f"id {number}", f"publish{number}")
            sent[f"id {number}"] += 1
        for _ in range(3):  # Equal publishes, and one id that was buried twice.
            bury(producer, "equal", "")
            sent["equal"] += 1
        for number in range(2):
            bury(producer, "twice", "publishtwice", deaths=number)
            sent["twice"] += 1
    chance = random.Random(7)
    for number in range(KILLS):
        batches = str(chance.randint(1, 3)) if number % 2 else ""
        several = [place.start([sys.executable, "-m", "tests.support.collecting", "60", *batches]) for _ in range(2)]
        time.sleep(chance.uniform(1.5, 3.0))
        for process in several:
            process.kill()
    place.start([sys.executable, "-m", "tests.support.collecting", "120"])
    until(lambda: place.depth(DEAD) == 0 and Letter.objects.count() >= sum(sent.values()), 60, "all are collected")
    time.sleep(2)
    assert Counter(Letter.objects.values_list("task_id", flat=True)) == sent


def bury(producer: Producer, task_id: str, publish_id: str, deaths: int = 0) -> None:
    headers: dict[str, Any] = {"task": f"{T}.fail", "id": task_id}
    if publish_id:
        headers[PUBLISH_ID_HEADER] = publish_id
    if deaths:
        headers["x-death"] = [{"queue": QUEUE, "reason": "rejected", "count": deaths}]
    producer.publish([[], {}, {}], routing_key=DEAD, headers=headers, serializer="json", delivery_mode=2)
