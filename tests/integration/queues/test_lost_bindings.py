"""A binding that RabbitMQ has lost is named as that, and `queues declare` restores it."""

from collections.abc import Callable
from typing import Any

import pytest

from ami.celery.declaration import declare
from ami.queues import rollout
from tests.support.place import Place, management, until

T = "tests.support.worker_tasks.basic.succeed"
QUEUE, FALLBACK = "antenna-ingest", "antenna"
DELAYED = "celery_delayed_delivery"
pytestmark = pytest.mark.django_db


@pytest.fixture
def place(place: Place) -> Place:
    place.queues("declare")
    return place


def lose(place: Place, fits: Callable[[Any], bool]) -> int:
    """Delete bindings, as definitions that were restored without them do; return how many."""
    lost = [each for each in management("GET", f"bindings/{place.vhost}").json() if each["source"] and fits(each)]
    for each in lost:
        ends = f"e/{each['source']}/{each['destination_type'][0]}/{each['destination']}"
        management("DELETE", f"bindings/{place.vhost}/{ends}/{each['properties_key']}")
    return len(lost)


def found(place: Place) -> dict[str, str]:
    told = place.queues("check", "--live", check=False).json
    return {each["target"]: each["sentence"] for each in told if each["name"] == "lost-binding"}


def test_lost_binding_behind_the_delay_exchange_is_named_and_restored(place: Place):
    assert found(place) == {}
    assert lose(place, lambda each: each["source"] == DELAYED and each["routing_key"] == f"#.{QUEUE}") == 1
    (sentence,) = found(place).values()
    assert sentence == (
        f"{QUEUE} has lost the binding behind its delay exchange {DELAYED}: its countdowns and retries end in "
        "antenna.unrouted; run 'manage.py queues declare', then replay what is kept there."
    )
    place.queues("declare")
    assert found(place) == {}
    place.send(T, queue=QUEUE, countdown=1)
    until(lambda: place.depth(QUEUE) == 1, 20)


def test_all_lost_bindings_behind_the_delay_exchange_are_named_for_each_queue(place: Place):
    lose(place, lambda each: each["source"] == DELAYED)
    assert found(place).keys() == set(place.app.topology.queues)
    with place.app.connection_for_write() as connection:
        declare(place.app.topology, connection, own=(FALLBACK,))  # As a worker that starts.
    assert found(place) == {}


@pytest.mark.parametrize("key", [QUEUE, f"#.{QUEUE}", FALLBACK])
def test_lost_routing_key_is_named_and_restored(place: Place, key: str):
    queue = key.removeprefix("#.")
    assert lose(place, lambda each: (each["source"], each["routing_key"]) == ("antenna", key)) == 1
    assert "to the exchange antenna: its messages end in antenna.unrouted" in found(place)[queue]
    place.queues("declare")
    assert found(place) == {}
    place.send(T, queue=queue)
    until(lambda: place.depth(queue) == 1, 20)


def test_keys_that_a_rollback_took_are_not_lost(place: Place):
    with place.app.connection_for_write() as connection:
        rollout.rollback(place.app.topology, connection)
    assert found(place) == {}
    place.queues("declare")
    place.send(T, queue=QUEUE)
    until(lambda: place.depth(FALLBACK) == 1, 20, "the fallback queue keeps the key")
