"""A worker's events: its loop never waits for them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kombu import Connection

from ami.celery.events import EventDispatcher


class Line:
    """A connection to RabbitMQ that publishes into a list, and delivers its notices when it is read."""

    connection_errors = (OSError,)

    def __init__(self) -> None:
        self.published: list[Any] = []
        self.to_tell: list[Callable[[], None]] = []
        self.collected = 0
        self.transport = Connection("amqp://").transport
        self.connection = SimpleNamespace(on_blocked=None, on_unblocked=None)
        self.default_channel = SimpleNamespace(_basic_publish=self._publish, basic_publish=self._wait)

    def _publish(self, message: Any, **_: Any) -> None:
        self.published.append(message)

    def _wait(self, *_: Any, **__: Any) -> None:
        raise AssertionError("it waits for a confirmation")

    def drain_events(self, timeout: float) -> None:
        """Deliver the next notice, or time out."""
        if not self.to_tell:
            raise TimeoutError
        self.to_tell.pop(0)()

    def collect(self) -> None:
        """Count."""
        self.collected += 1


class Producer:
    """Publishes to the line's channel as kombu's does."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def publish(self, event: Any, **_: Any) -> None:
        """Publish the event's type, or those of a batch."""
        types = [each["type"] for each in event] if isinstance(event, list) else event["type"]
        self._line.default_channel.basic_publish(types)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def dispatcher(app: Any, line: Line) -> EventDispatcher:
    made = EventDispatcher(line, hostname="w@h", app=app, enabled=False)
    made.connection = line
    made.channel = None
    made.enable()
    made.producer = Producer(line)
    return made


@pytest.fixture
def batching(dispatcher: EventDispatcher) -> EventDispatcher:
    """The dispatcher as in a worker with an event loop; the tests flush it."""
    dispatcher.buffer_group = frozenset({"task"})
    return dispatcher


def test_no_event_waits_for_a_confirmation(dispatcher: EventDispatcher, line: Line):
    dispatcher.send("worker-heartbeat")
    assert line.published == ["worker-heartbeat"]


def test_incident_7_events_are_dropped_while_the_broker_reads_nothing(dispatcher: EventDispatcher, line: Line):
    line.connection.on_blocked("low on disk")
    dispatcher.send("task-received")
    assert line.published == []
    line.to_tell = [line.connection.on_unblocked]
    dispatcher.send("task-started")
    assert line.published == ["task-started"]


def test_blocked_connection_is_dropped_not_closed(dispatcher: EventDispatcher, line: Line):
    dispatcher.before_close()
    assert line.collected == 0, "Celery closes it"
    line.connection.on_blocked("low on disk")
    dispatcher.before_close()
    assert line.collected == 1


def test_waiting_events_are_published_before_their_connection_closes(batching: EventDispatcher, line: Line):
    batching.send("task-received")
    assert line.published == []
    batching.before_close()
    assert line.published == [["task-received"]]


def test_pooled_connection_keeps_its_confirmations(app: Any):
    with app.connection_for_write().Pool(1).acquire() as pooled:
        EventDispatcher(pooled, app=app)
        assert not pooled.connected, "it was not even opened"


def test_the_application_sends_its_events_so(app: Any):
    assert issubclass(app.events.Dispatcher, EventDispatcher)
