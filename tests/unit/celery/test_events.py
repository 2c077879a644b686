"""A worker's events: its loop never waits for them, and those of tasks are sent in batches and only to readers."""

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kombu import Connection
from kombu.asynchronous import Hub, get_event_loop, set_event_loop

from ami.celery import events
from ami.celery.events import EventDispatcher


class Line:
    """A connection to RabbitMQ that publishes into a list, and delivers its notices when it is read."""

    connection_errors = (OSError,)

    def __init__(self) -> None:
        self.published: list[Any] = []
        self.asked: list[Any] = []
        self.has_reader = True
        self.to_tell: list[Callable[[], None]] = []
        self.collected = 0
        self.transport = Connection("amqp://").transport
        self.connection = SimpleNamespace(on_blocked=None, on_unblocked=None)
        self.default_channel = SimpleNamespace(
            _basic_publish=self._publish, basic_publish=self._wait, events=defaultdict(set)
        )

    def _publish(self, message: Any, mandatory: bool = False, **_: Any) -> None:
        self.published.append(message)
        if mandatory:
            self.asked.append(message)
            for returned in () if self.has_reader else self.default_channel.events["basic_return"]:
                returned(None, "celeryev", "task.multi", message)

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


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the dispatcher."""
    seconds = [1000.0]
    monkeypatch.setattr(events, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    return seconds


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


def test_one_batch_a_second_asks_whether_there_is_a_reader(batching: EventDispatcher, line: Line, now: list[float]):
    for _ in range(3):
        batching.send("task-received")
        batching.flush()
    assert (len(line.published), len(line.asked)) == (3, 1)
    now[0] += events.ASK_SECONDS
    batching.send("task-received")
    batching.flush()
    assert len(line.asked) == 2


def test_task_events_are_dropped_while_nobody_reads_them(batching: EventDispatcher, line: Line, now: list[float]):
    line.has_reader = False
    for _ in range(3):
        batching.send("task-received")
        batching.flush()
    batching.send("worker-heartbeat")
    assert line.published == [["task-received"], "worker-heartbeat"]
    now[0] += events.ASK_SECONDS
    batching.send("task-started")
    batching.send("task-succeeded")
    assert line.published[2:] == [["task-started"]], "one event asks again, at once"


def test_new_reader_gets_every_event_from_the_next_question_on(batching: EventDispatcher, line: Line, now: list[float]):
    line.has_reader = False
    batching.send("task-received")
    batching.flush()
    line.has_reader, line.published = True, []
    now[0] += events.ASK_SECONDS
    for kind in ("task-received", "task-started", "task-succeeded"):
        batching.send(kind)
    batching.flush()
    assert line.published == [["task-received"], ["task-started", "task-succeeded"]]


def test_events_of_a_moment_are_one_message(app: Any):
    before, hub = get_event_loop(), Hub()
    set_event_loop(hub)
    try:
        with app.connection_for_write() as connection:
            sender = EventDispatcher(connection, app=app, enabled=False, buffer_group=["task"], on_send_buffered=print)
            sender.enabled = True
            sent: list[Any] = []
            sender.producer = SimpleNamespace(publish=lambda event, **_: sent.append([each["type"] for each in event]))
            sender.send("task-received")
            sender.send("task-started")
            hub.run_once()
            assert sent == [], "they wait for others"
            [timer] = hub.timer.queue
            timer.entry()
            assert sent == [["task-received", "task-started"]]
    finally:
        hub.close()
        set_event_loop(before)


def test_pooled_connection_keeps_its_confirmations(app: Any):
    with app.connection_for_write().Pool(1).acquire() as pooled:
        EventDispatcher(pooled, app=app)
        assert not pooled.connected, "it was not even opened"


def test_the_application_sends_its_events_so(app: Any):
    assert issubclass(app.events.Dispatcher, EventDispatcher)
