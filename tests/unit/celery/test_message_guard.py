"""Every way in which a message can be wrong ends in the dead letters of its queue, and raises nothing."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import InvalidTaskError
from kombu import Connection, Queue

from ami.celery import dead_letter_publisher, message_guard
from ami.celery.broker_kind import BrokerKind
from ami.celery.message_copy import REASON_HEADER
from ami.celery.message_guard import GuardedConsumer, GuardedWorker
from tests.support.brokers import celery_at
from tests.support.governor.channel import QUEUES, Channel
from tests.support.hostile_messages import HOSTILE, publish

QUEUE, LETTERS = "antenna", "antenna.dlq"
CASES = {case.name: case for case in HOSTILE}


class Controller:
    """A worker's controller whose pool starts nothing, or fails."""

    use_eventloop = False
    governor_plan = SimpleNamespace(settings=SimpleNamespace(memory_governor="off", acts=False))

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.released = 0
        self.fails: Exception | None = None

    def _process_task(self, request: Any) -> None:
        if self.fails:
            raise self.fails
        self.started.append(request)

    def _quick_release(self) -> None:
        self.released += 1


class World:
    """A guarded worker that consumes from a broker in memory, without an event loop."""

    def __init__(self, app: Any) -> None:
        from ami.celery.declaration import declare

        self.app, self.controller, self.handled = app, Controller(), []
        self.connection: Connection = app.connection_for_read()
        declare(app.topology, self.connection)
        self.worker = GuardedWorker(
            self.controller._process_task, app=app, controller=self.controller, timer=None, hub=None
        )
        self.worker.connection = self.connection
        self.worker.strategies.update({"good": self._strategy})
        self.worker.strategies[CASES["no body"].headers["task"]] = self._strategy
        self.consumer = GuardedConsumer(
            self.connection.default_channel,
            [app.amqp.queues[QUEUE]],
            auto_declare=False,
            accept=["json"],
            on_decode_error=self.worker.on_decode_error,
        )
        self.worker.task_consumer = self.consumer
        self.consumer.manage(1, self.worker.call_soon, lambda _: None, lambda message: self.refuses(message))
        self.refuses: Callable[[Any], bool] = lambda _: False
        self.strategy: Callable[..., Any] = lambda *_: None
        self.consumer.on_message = self.worker.create_task_handler()
        self.consumer.slots = 1
        self.consumer.consume()

    def _strategy(self, message: Any, *rest: Any) -> None:
        self.handled.append(message)
        self.strategy(message, *rest)
        message.ack()

    def send(self, name: str = "good") -> None:
        if name in CASES:
            publish(self.connection, QUEUE, CASES[name])
        else:
            self.app.send_task(name, connection=self.connection)

    def turn(self) -> None:
        """Let the loop turn once."""
        self.worker.perform_pending_operations()
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=0.02)
        self.worker.perform_pending_operations()

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            self.turn()
            if answer := condition():
                return answer
        raise AssertionError(what)

    def letters(self) -> int:
        return self.depth(LETTERS)

    def depth(self, queue: str) -> int:
        with self.connection.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).message_count)

    def letter(self) -> Any:
        """Wait for a dead letter and for the acknowledgement of its message, and take it."""
        self.until(self.letters, "a dead letter")
        qos = self.consumer.channel.qos
        self.until(lambda: not set(qos._delivered) - qos._dirty, "the message is settled")
        with self.connection.channel() as channel:
            return channel.basic_get(LETTERS, no_ack=True)


@pytest.fixture
def world(app: Any, tmp_path: Any) -> Iterator[World]:
    with celery_at(f"objectstore+file://{tmp_path}/broker", {}):
        made = World(app)
        yield made
        made.connection.release()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("single quotes", "MalformedMessage: its body cannot be decoded: JSONDecodeError: Expecting value"),
        ("unknown compression", "KeyError: 'no-such'"),
        ("content type of raw data", "MalformedMessage: its content type is 'application/data', not application/json"),
        ("no headers", "MalformedMessage: neither its headers nor its body names a task"),
        ("unknown task", "MalformedMessage: the task 'no.such.task' is not registered in this worker"),
        ("expiry of garbage", "MalformedMessage: header 'expires' is 'garbage', not a moment in ISO 8601"),
    ],
)
def test_malformed_message_is_a_dead_letter_with_its_reason_and_as_it_was(world: World, name: str, why: str):
    world.send(name)
    letter = world.letter()
    assert letter.headers[REASON_HEADER].startswith(why)
    assert bytes(letter.body) == CASES[name].body
    assert letter.content_type == CASES[name].properties["content_type"]
    assert {key: value for key, value in letter.headers.items() if key != REASON_HEADER} == CASES[name].headers
    assert world.handled == []


@pytest.mark.parametrize("error", [InvalidTaskError("bad"), TypeError("x"), KeyError("x"), RecursionError("x")])
def test_whatever_a_strategy_raises_buries_its_message(world: World, error: Exception):
    world.strategy = lambda *_: (_ for _ in ()).throw(error)
    world.send()
    assert world.letter().headers[REASON_HEADER].startswith(type(error).__name__)


def test_what_the_governor_cannot_read_is_buried(world: World):
    world.refuses = lambda _: (_ for _ in ()).throw(TypeError("unhashable"))
    world.send()
    assert world.letter().headers[REASON_HEADER] == "TypeError: unhashable"


def test_what_the_governor_gives_up_says_that_it_killed_its_worker(world: World):
    from ami.governor.errors import PoisonTask

    def refuses(message: Any) -> bool:
        world.consumer.give_up(message, PoisonTask("it was running each time its worker was killed"))
        return True

    world.refuses = refuses
    world.send()
    assert "its worker was killed" in world.letter().headers[REASON_HEADER]


def test_failure_to_hand_a_task_to_the_pool_buries_it_and_frees_its_place(world: World):
    world.controller.fails = ValueError("too many values to unpack")

    class Request:
        id, time_start, message = "1", None, None

    request = Request()

    def start(message: Any, *_: Any) -> None:
        request.message = message
        message.ack = lambda: None  # The strategy of this test acknowledges.
        world.worker.on_task_request(request)

    world.strategy = start
    world.send()
    world.until(lambda: world.letters(), "a dead letter")
    assert world.controller.released == 1


def test_next_message_runs_while_the_dead_letters_cannot_be_stored(world: World, monkeypatch: Any, caplog: Any):
    tries: list[float] = []

    def fail(*_: Any) -> None:
        tries.append(time.monotonic())
        raise OSError("no space left on device")

    copy = dead_letter_publisher.copy
    monkeypatch.setattr(dead_letter_publisher, "copy", fail)
    monkeypatch.setattr(dead_letter_publisher, "FIRST_PAUSE_SECONDS", 0.2)
    world.send("body null")
    world.send("good")
    world.until(lambda: len(world.handled) == 1, "the next message runs, with one slot")
    world.until(lambda: len(tries) >= 2, "it is tried again")
    assert tries[1] - tries[0] >= 0.2, "after a pause"
    assert world.letters() == 0
    assert "Dead letters not stored; retrying" in caplog.text
    monkeypatch.setattr(dead_letter_publisher, "copy", copy)
    assert world.letter().headers[REASON_HEADER].startswith("MalformedMessage")


def test_message_whose_copy_cannot_be_stored_is_requeued(world: World, monkeypatch: Any):
    monkeypatch.setattr(dead_letter_publisher, "copy", lambda *_: (_ for _ in ()).throw(OSError("away")))
    monkeypatch.setattr(dead_letter_publisher, "RETURN_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(dead_letter_publisher, "FIRST_PAUSE_SECONDS", 0.05)
    world.send("body null")
    world.until(lambda: world.worker.dead_letters._letters, "it is to be buried")
    world.consumer.slots = 0
    world.until(lambda: world.depth(QUEUE) == 1, "it is back")
    assert world.letters() == 0


def test_message_that_cannot_be_copied_is_rejected_so_that_the_broker_keeps_it(world: World, monkeypatch: Any):
    monkeypatch.setattr(dead_letter_publisher, "copy", lambda *_: (_ for _ in ()).throw(TypeError("cannot be encoded")))
    world.send("body null")
    assert world.letter().headers["x-death"][0]["reason"] == "rejected"


def test_message_is_rejected_on_a_broker_without_dead_letters(world: World, monkeypatch: Any, caplog: Any):
    monkeypatch.setattr(message_guard, "kind_of", lambda _: BrokerKind())
    world.send("body null")
    world.until(world.letters, "it is rejected")
    text = "Message rejected before its task started; its queue keeps no dead letters: MalformedMessage"
    (record,) = [record for record in caplog.records if record.getMessage().startswith(text)]
    assert record.queue == QUEUE


def test_deleted_dead_letter_queue_is_declared_again(world: World, monkeypatch: Any):
    monkeypatch.setattr(dead_letter_publisher, "FIRST_PAUSE_SECONDS", 0.05)
    with world.connection.channel() as channel:
        channel.queue_delete(LETTERS)
    world.send("body null")
    declarations = world.connection.transport.broker.declarations
    world.until(lambda: LETTERS in declarations.current(fresh=True).queues, "declared")
    assert REASON_HEADER in world.letter().headers


def test_control_message_that_cannot_be_decoded_is_only_logged(world: World, caplog: Any):
    foreign = SimpleNamespace(channel=object(), acknowledged=False)
    with caplog.at_level(logging.ERROR):
        world.worker.on_decode_error(foreign, ValueError("garbage"))
    assert "Control message dropped: ValueError: garbage" in caplog.text


def test_connection_error_is_left_to_celery(world: World):
    world.strategy = lambda *_: (_ for _ in ()).throw(ConnectionResetError("lost"))
    world.send()
    with pytest.raises(ConnectionResetError):
        world.until(lambda: False)


def test_memory_error_is_left_to_celery(world: World):
    world.strategy = lambda *_: (_ for _ in ()).throw(MemoryError)
    world.send()
    with pytest.raises(MemoryError):
        world.until(lambda: False)


def test_reason_is_one_bounded_line():
    text = message_guard.reason(ValueError("a\nb\x00" + "x" * 5_000))
    assert text.startswith("ValueError: a b x")
    assert len(text) == message_guard.MAX_REASON


@pytest.mark.parametrize("multiplier", [1, 2])
def test_message_that_is_set_aside_keeps_no_slot_on_rabbitmq(multiplier: int):
    """Each slot is a consumer with its own prefetch, which an unacknowledged message takes up."""
    channel, soon = Channel(), []
    consumer = GuardedConsumer(channel, [Queue("q")], auto_declare=False, tag_prefix="w-")
    consumer._queues = {QUEUES[0].name: QUEUES[0](channel)}
    consumer.manage(multiplier, soon.append, lambda _: None, lambda _: False)
    consumer.on_message = lambda message: consumer.set_aside(message.delivery_tag)
    consumer.slots = 2
    consumer.consume()
    before = list(channel.callbacks)
    channel.deliver(before[0])
    for later in soon:
        later()
    assert before[0] not in channel.callbacks
    assert len(channel.callbacks) == 2, "another consumer takes the next message"
    channel.basic_ack(1)
    assert len(channel.callbacks) == 2
