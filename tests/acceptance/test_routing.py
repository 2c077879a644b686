"""Where a message lands: by the task's name and by who asked, also when it retries."""

import pytest
from celery.exceptions import QueueNotFound
from kombu import Producer

from ami.topology import broker
from tests.support.place import BROKERS, Place, until

on_every_broker = pytest.mark.parametrize("place", BROKERS, indirect=True)

T = "tests.support.worker_tasks.basic"


@on_every_broker
def test_unknown_queue_in_apply_async_is_an_error_and_not_a_new_queue(place: Place):
    with pytest.raises(QueueNotFound, match="Did you mean 'antenna-ingest'"):
        place.send(f"{T}.succeed", queue="antena-ingest")


@on_every_broker
def test_message_that_matches_no_binding_is_kept_shown_and_replayed(place: Place):
    place.queues("declare")
    message_id = place.send(f"{T}.succeed", exchange=broker.EXCHANGE_NAME, routing_key="nowhere")
    until(lambda: place.depth(broker.UNROUTED) == 1)
    rows = place.queues("dead-letters", broker.UNROUTED).json
    assert [(row["task_id"], row["reason"]) for row in rows] == [(message_id, "unrouted")]
    place.worker("antenna")
    place.queues("dead-letters", broker.UNROUTED, "--replay")
    assert until(lambda: place.ran("succeed"))[0]["id"] == message_id


def test_unrouted_task_runs_on_the_fallback_and_is_counted(database_place: Place):
    from ami.telemetry.models import UnroutedTask

    database_place.worker("antenna")
    database_place.send(f"{T}.succeed")
    record = until(lambda: database_place.ran("succeed"))[0]
    assert record["consumed_from"] == "antenna"
    counted = until(lambda: UnroutedTask.objects.filter(name=f"{T}.succeed").first(), what="the run is counted")
    assert counted.runs == 1


@on_every_broker
def test_body_of_foreign_bytes_is_kept_by_a_move(place: Place):
    place.queues("declare")
    with place.app.connection_for_write() as connection:
        producer = Producer(connection.channel(), auto_declare=False)
        producer.publish(b"\x00\xff", exchange=broker.EXCHANGE_NAME, routing_key="nowhere", content_type="x/y",
                         content_encoding="binary", headers={"task": f"{T}.succeed"})  # fmt: skip
        until(lambda: place.depth(broker.UNROUTED) == 1)
    place.queues("dead-letters", broker.UNROUTED, "--replay")
    assert place.depth("antenna") == 1


def test_warm_shutdown_loses_no_run_of_an_unrouted_task(database_place: Place):
    from ami.telemetry.models import UnroutedTask

    worker = database_place.worker("antenna")
    for _ in range(20):
        database_place.send(f"{T}.succeed")
    until(lambda: len(database_place.ran("succeed")) == 20)
    assert worker.stop() == 0
    assert UnroutedTask.objects.get(name=f"{T}.succeed").runs == 20
