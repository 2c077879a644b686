"""Delays and expiry happen by themselves while any queue of the broker has a consumer."""

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Queue

from ami.transports.objectstore.broker import open_slots, timekeeper
from ami.transports.objectstore.broker.envelope import unseal
from ami.transports.objectstore.broker.eta import REASON_HEADER
from ami.transports.objectstore.storage.errors import DamageError
from tests.support.place import until
from tests.support.transports import python_processes
from tests.support.transports.messages import LETTERS, QUEUE, declare, depth, dying, receive, send

OTHER = Queue("beetles", Exchange("site", type="topic", durable=True), routing_key="beetles", durable=True)

#: A process that consumes a queue until its standard input ends, and prints what it received and when.
CONSUMER = """
import sys, time
from kombu import Connection, Consumer
from ami.transports import register
register()
connection = Connection(sys.argv[1])
channel = connection.channel()
def take(message):
    print(message.body.decode(), time.time(), flush=True)
    message.ack()
channel.basic_consume(sys.argv[2], callback=take)
print("consumes", flush=True)
while True:
    connection.drain_events(timeout=None)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timekeeper, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(timekeeper, "LONGEST_POLL_SECONDS", 0.05)


@contextmanager
def consumed(connection: Connection, queue: Queue) -> Iterator[list[Any]]:
    """Consume a queue, without taking part in anything else; yield what `Consumer.consume` received."""
    got: list[Any] = []
    with connection.channel() as channel, Consumer(channel, [queue], on_message=got.append):
        yield got


def eta(seconds: float) -> dict[str, str]:
    return {"eta": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}


def test_messages_expire_from_queue_to_queue_without_consumers(connect):
    connection, consumer = connect(), connect()
    first = Queue("first", durable=True, queue_arguments=expiring(0.3, "second"))
    second = Queue("second", durable=True, queue_arguments=expiring(0.2, "moths"))
    declare(connection, QUEUE, OTHER, first, second)
    began = time.time()
    for number in range(3):
        connection.Producer().publish(number, routing_key="first", serializer="json")
    with consumed(consumer, OTHER):
        until(lambda: depth(connection, "moths") == 3, 60)
    assert time.time() - began >= 0.5
    got = receive(connection, QUEUE, 3)
    assert [message.payload for message in got] == [0, 1, 2]
    assert [death["queue"] for death in got[0].headers["x-death"]] == ["second", "first"]


def test_a_message_that_expires_in_a_circle_stays_where_it_is(connect, caplog):
    connection = connect()
    first = Queue("first", durable=True, queue_arguments=expiring(0.05, "second"))
    second = Queue("second", durable=True, queue_arguments=expiring(0.05, "first"))
    declare(connection, OTHER, first, second)
    connection.Producer().publish(1, routing_key="first", serializer="json")
    with consumed(connect(), OTHER):
        until(lambda: "No dead-letter queue for message" in caplog.text, 60)
    assert len(connection.transport.broker.store("second").look().buried) == 1


def expiring(seconds: float, queue: str) -> dict[str, Any]:
    return {
        "x-message-ttl": int(1000 * seconds),
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
    }


def test_a_message_with_an_eta_is_delivered_when_it_is_due(connect):
    connection, consumer = connect(), connect()
    declare(connection, QUEUE)
    due = time.time() + 0.7
    send(connection, "later", headers=eta(0.7))
    send(connection, "now", headers=eta(-5))
    assert depth(connection, "moths") == 1
    got: dict[str, float] = {}

    def settle(message: Any) -> None:
        got[message.payload] = time.time()
        message.ack()

    receive(consumer, QUEUE, 2, settle)
    assert got["later"] >= due - 0.001
    assert list(got) == ["now", "later"]


def test_delays_and_expiry_wait_for_the_first_consumer(connect):
    connection = connect()
    declare(connection, dying(**{"x-message-ttl": 50}), LETTERS, OTHER)
    send(connection, "expired")
    send(connection, "delayed", key="beetles", headers=eta(0.05))
    until(lambda: time.time() > connection.transport.broker.wheel.slots()[-1].start + 1, 60)
    assert depth(connection, "beetles") == depth(connection, "moths.dlq") == 0
    assert [one.payload for one in receive(connect(), OTHER, 1)] == ["delayed"]
    with consumed(connect(), OTHER):
        until(lambda: depth(connection, "moths.dlq") == 1, 60)


def test_a_message_that_expired_while_it_was_held_expires_when_it_is_requeued(connect):
    connection, holder = connect(), connect()
    queue = dying(**{"x-message-ttl": 200})
    declare(connection, queue, LETTERS, OTHER)
    send(connection, 1)
    expires = time.time() + 0.2
    with consumed(connect(), OTHER):
        with consumed(holder, queue) as held:
            holder.drain_events(timeout=60)
            until(lambda: time.time() > expires + 0.1)
            assert len(held) == 1
        until(lambda: depth(connection, "moths.dlq") == 1, 60)


def test_a_sweep_frees_the_memory_of_a_queue_without_consumers(connect):
    connection = connect()
    declare(connection, dying(**{"x-message-ttl": 100}), LETTERS, OTHER)
    send(connection, 1)
    with consumed(connect(), OTHER):
        until(lambda: depth(connection, "moths.dlq") == 1, 60)
        until(lambda: not connection.transport.broker.store("moths").is_followed, 60)


def test_a_message_that_no_queue_takes_when_due_is_kept(connect, monkeypatch, caplog):
    monkeypatch.setattr(open_slots, "FIRST_RETRY_SECONDS", 0.5)
    connection = connect()
    declare(connection, QUEUE, OTHER)
    send(connection, "kept", headers=eta(0.1))
    connection.default_channel.queue_unbind("moths", "site", routing_key="moths.#")
    with consumed(connect(), OTHER):
        until(lambda: "no queue takes them" in caplog.text, 60)
        declare(connection, QUEUE)
        until(lambda: depth(connection, "moths") == 1, 60)


def test_a_queue_that_cannot_be_read_does_not_hold_up_the_others(folder_url, caplog):
    with Connection(folder_url) as connection, Connection(folder_url) as consumer:
        declare(connection, dying(**{"x-message-ttl": 100}), LETTERS, OTHER)
        send(connection, "unreadable")
        send(connection, "delayed", key="beetles", headers=eta(0.3))
        log = connection.transport._address.folder / "queues" / "moths" / "00000001.log"
        log.write_bytes(bytes(log.stat().st_size))
        assert [one.payload for one in receive(consumer, OTHER, 1)] == ["delayed"]
        assert "Expired messages cannot be moved" in caplog.text


def test_a_queue_that_refuses_a_due_message_does_not_repeat_those_of_others(folder_url):
    with Connection(folder_url) as connection:
        declare(connection, QUEUE, OTHER)
        send(connection, "before", key="beetles")
        log = connection.transport._address.folder / "queues" / "beetles" / "00000001.log"
        log.write_bytes(bytes(log.stat().st_size))
        send(connection, "to a damaged queue", key="beetles", headers=eta(0.05))
        send(connection, "fired", headers=eta(0.05))
        broker = connection.transport.broker
        with pytest.raises(DamageError):
            broker.store("beetles").look()
        slots = open_slots.OpenSlots(broker)
        until(lambda: slots.work(threading.Event()) and depth(connection, "moths") == 1, 20)
        stores = [broker.wheel.store(slot) for slot in broker.wheel.slots()]
        kept = [(store, entry) for store in stores for entry in store.look().entries.values()]
        assert [unseal(store.payload(entry))["body"] for store, entry in kept] == [b'"to a damaged queue"']


@pytest.mark.parametrize(
    "headers", [{REASON_HEADER: "malformed"}, {"eta": "tomorrow"}, {"eta": 5}, {"eta": "9999-12-31T23:59:59+00:00"}]
)
def test_dead_letters_and_unreadable_etas_are_stored_at_once(connect, headers):
    connection = connect()
    declare(connection, QUEUE)
    send(connection, 1, headers={**eta(3600), **headers})
    assert depth(connection, "moths") == 1


def test_the_timekeeper_ends_with_the_last_consumer(connect):
    connection, consumer = connect(), connect()
    declare(connection, QUEUE, OTHER)
    with consumed(consumer, OTHER):
        broker = consumer.transport.broker
        assert broker.timekeeper._run_now is not None
    assert broker.timekeeper._run_now is None
    send(connection, 1, headers=eta(0.05))
    assert [one.payload for one in receive(consumer, QUEUE, 1)] == [1]


@pytest.mark.processes
def test_another_process_fires_when_the_one_that_kept_the_time_is_killed(folder_url):
    with Connection(folder_url) as connection:
        declare(connection, QUEUE, OTHER)
        with started_consumer(folder_url, "beetles") as keeper, started_consumer(folder_url, "moths") as other:
            due = time.time() + 3
            for number in range(20):
                send(connection, number, headers=eta(3 + number / 100))
            keeper.kill()
            keeper.wait()
            lines = [other.stdout.readline().split() for _ in range(20)]
    assert [int(number) for number, _ in lines] == list(range(20))
    assert all(float(at) >= due for _, at in lines)


@pytest.mark.processes
def test_one_that_kept_the_time_and_was_stopped_repeats_nothing(folder_url, tmp_path):
    lock = tmp_path / "broker" / "delayed" / timekeeper.LOCK
    with Connection(folder_url) as connection:
        declare(connection, QUEUE, OTHER)
        with started_consumer(folder_url, "beetles") as stopped, started_consumer(folder_url, "moths") as other:
            for number in range(20):
                send(connection, number, headers=eta(1 + number / 100))
            stopped.send_signal(signal.SIGSTOP)
            # As if it had been stopped for long.
            os.utime(lock, (0, 0))
            lines = [other.stdout.readline().split() for _ in range(20)]
            stopped.send_signal(signal.SIGCONT)
            send(connection, "after", headers=eta(0.3))
            lines.append(other.stdout.readline().split())
    assert [number for number, _ in lines] == [*map(str, range(20)), '"after"']


def test_nothing_is_fired_by_one_that_was_replaced(folder_url):
    with Connection(folder_url) as connection:
        declare(connection, QUEUE, OTHER)
        send(connection, 1, headers=eta(0.05))
        broker, terms = connection.transport.broker, itertools.count()
        replaced = open_slots.OpenSlots(broker, lambda: next(terms))
        until(lambda: replaced.work(threading.Event()) and time.time() > broker.wheel.slots()[0].start + 1, 20)
        assert depth(connection, "moths") == 0
        current = open_slots.OpenSlots(broker)
        until(lambda: current.work(threading.Event()) and depth(connection, "moths") == 1, 20)


@contextmanager
def started_consumer(url: str, queue: str) -> Iterator[Any]:
    with python_processes.started(CONSUMER, url, queue) as process:
        assert process.stdout.readline() == "consumes\n"
        yield process
