"""On RabbitMQ the events of tasks are published while somebody reads them, and not otherwise."""

from contextlib import suppress
from typing import Any

from celery.events import EventReceiver
from kombu import Connection

from ami.celery.events import EventDispatcher
from tests.support.place import Place, until

FALLBACK = "antenna"


def answers(connection: Connection) -> None:
    """Read what the broker has sent."""
    with suppress(TimeoutError):
        while True:
            connection.drain_events(timeout=0.05)


def reader(place: Place, connection: Connection, kinds: list[str]) -> Any:
    """Return the started consumer of a reader that notes the kinds of events."""
    receiver = EventReceiver(connection, handlers={"*": lambda event: kinds.append(event["type"])}, app=place.app)
    [consumer] = receiver.get_consumers(lambda **options: _consumer(connection, options), connection.default_channel)
    consumer.consume()
    return consumer


def _consumer(connection: Connection, options: dict[str, Any]) -> Any:
    return connection.Consumer(**options)


def test_task_events_stop_without_a_reader_and_start_with_one(place: Place):
    with place.app.connection_for_write() as ours, place.app.connection_for_read() as theirs:
        sender = EventDispatcher(ours, app=place.app, buffer_group=["task"])
        sender.send("task-received", uuid="1")
        sender.flush()
        until(lambda: (answers(ours), sender.is_unread)[1], 20, "the broker has returned the event")

        kinds: list[str] = []
        reader(place, theirs, kinds)

        def is_read() -> bool:
            sender.send("task-started", uuid="1")
            answers(ours)
            answers(theirs)
            return bool(kinds)

        until(is_read, 20, "the reader has an event")
        sender.send("task-succeeded", uuid="1")
        sender.flush()
        until(lambda: (answers(theirs), "task-succeeded" in kinds)[1], 20, "the next one follows")
        assert not sender.is_unread


def test_reader_of_an_idle_worker_gets_every_event_of_the_next_task(place: Place):
    place.queues("declare")
    place.workers(FALLBACK)
    place.send("tests.support.worker_tasks.basic.succeed")
    until(lambda: place.ran("succeed"), what="a task ran without a reader")
    with place.app.connection_for_read() as connection:
        kinds: list[str] = []
        reader(place, connection, kinds)
        # The worker's heartbeats show that a second without a task is over.
        until(lambda: (answers(connection), kinds.count("worker-heartbeat") >= 2)[1], 30, "the worker is idle")
        place.send("tests.support.worker_tasks.basic.succeed")
        expected = ["task-received", "task-started", "task-succeeded"]
        until(lambda: (answers(connection), set(expected) <= set(kinds))[1], 30, f"{expected} arrive")
    assert [kind for kind in kinds if kind.startswith("task-")] == expected
