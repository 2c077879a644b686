"""A message with strange properties is refused, or set aside: it holds up nobody else's delays and dead letters."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from amqp.exceptions import PreconditionFailed
from kombu import Connection, Consumer, Queue

from ami.transports.objectstore.broker import timekeeper
from ami.transports.objectstore.broker.dead_letters import AT_ONCE
from ami.transports.objectstore.broker.envelope import seal
from ami.transports.objectstore.broker.wheel import Delayed
from ami.transports.objectstore.queue.commands import Bury, Enqueue
from tests.support.place import until
from tests.support.transports.messages import LETTERS, QUEUE, declare, depth, dying, send

STRANGE = [
    {"expiration": "soon"},
    {"expiration": "9" * 400},
    {"expiration": "9" * 5000},
    {"expiration": [1]},
    {"expiration": "-1"},
    {"priority": "high"},
    {"priority": [5]},
    {"priority": float("nan")},
    {"priority": float("inf")},
]
IDS = [f"{name}={str(value)[:8]}" for each in STRANGE for name, value in each.items()]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timekeeper, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(timekeeper, "LONGEST_POLL_SECONDS", 0.05)
    monkeypatch.setattr(timekeeper, "FAILED_SECONDS", 0.05)
    monkeypatch.setattr(timekeeper, "LONGEST_FAILED_SECONDS", 0.05)


def in_seconds(seconds: float) -> dict[str, Any]:
    return {"eta": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}


def consumed(connection: Connection) -> Consumer:
    return Consumer(connection.channel(), [QUEUE], on_message=lambda _: None)


@pytest.mark.parametrize("headers", [{}, in_seconds(3600)], ids=["now", "delayed"])
def test_strange_properties_are_refused_when_published(connect, headers):
    connection = connect()
    for properties in STRANGE:
        channel = declare(connection, QUEUE)
        message = channel.prepare_message("x", headers=headers)
        message["properties"].update(properties)
        with pytest.raises(PreconditionFailed):
            channel.basic_publish(message, exchange="site", routing_key="moths.new")
        assert depth(connection, "moths") == 0


@pytest.mark.parametrize("ttl", [2**32, 10**400, -1, "soon", True, 1.5])
def test_a_time_to_live_that_no_message_could_have_is_refused(connect, ttl):
    connection = connect()
    with pytest.raises(PreconditionFailed, match="x-message-ttl"):
        connection.default_channel.queue_declare("q", arguments={"x-message-ttl": ttl})
    assert not connection.transport.broker.declarations.current().queues


@pytest.mark.parametrize("properties", STRANGE, ids=IDS)
def test_a_strange_delayed_message_does_not_hold_up_the_others(folder_url, properties, caplog):
    connection = Connection(folder_url)
    declare(connection, QUEUE)
    due = time.time() + 0.3
    wheel = connection.transport.broker.wheel
    # Past what is checked at a publish.
    stored = {
        "body": "x",
        "headers": {},
        "properties": {"delivery_info": {"exchange": "site", "routing_key": "moths.a"}},
    }
    stored["properties"].update(properties)
    wheel.put([Delayed("strange", due, seal(stored))])
    send(connection, "plain", headers=in_seconds(0.3))
    with connection, consumed(connection):
        until(lambda: len(waiting(connection)) == 1, 20)
        until(lambda: "cannot be delivered" in caplog.text, 20)


def waiting(connection: Connection) -> list[str]:
    store = connection.transport.broker.store("moths")
    with store.lock:
        return list(store.look().entries)


DEATHS = [
    "yesterday",
    {"count": 1},
    [["count", 1]],
    [{}],
    [{"queue": "moths", "reason": "rejected", "count": "many"}],
    [{"queue": "moths", "reason": "rejected", "count": None}],
    [{"queue": ["moths"], "reason": {"a": 1}}],
    [{"queue": f"q{number}", "reason": "expired", "count": 1} for number in range(10_000)],
]


@pytest.mark.parametrize("deaths", DEATHS, ids=range(len(DEATHS)))
def test_strange_deaths_do_not_keep_a_message_from_its_dead_letters(connect, deaths):
    connection = connect()
    channel = declare(connection, dying(), LETTERS)
    send(connection, "strange", headers={"x-death": deaths})
    send(connection, "plain")
    for _ in range(2):
        channel.basic_reject(channel.basic_get("moths").delivery_tag, requeue=False)
    until(lambda: depth(connection, "moths.dlq") == 2, 20)
    first = channel.basic_get("moths.dlq").headers["x-death"][0]
    assert (first["queue"], first["reason"]) == ("moths", "rejected")
    assert isinstance(first["count"], int)


def test_dead_letters_that_are_refused_do_not_hold_up_others(connect):
    connection = connect()
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    declare(connection, Queue("full", durable=True, queue_arguments=full))
    declare(connection, Queue("free", durable=True))
    # Without a routing key of its own, a dead letter keeps the message's.
    arguments = {"x-dead-letter-exchange": "site"}
    channel = declare(connection, Queue("dying", QUEUE.exchange, routing_key="#", queue_arguments=arguments))
    channel.queue_bind("full", "site", "to.full")
    channel.queue_bind("free", "site", "to.free")
    channel.queue_unbind("dying", "site", "#")
    store = connection.transport.broker.store("dying")
    for key in ["to.full"] * (AT_ONCE + 1) + ["to.free"]:
        message = channel.prepare_message("x")
        message["properties"]["delivery_info"] = {"exchange": "site", "routing_key": key}
        store.commit([Enqueue(f"{key}-{time.time_ns()}", seal(message))])
    for _ in range(AT_ONCE + 2):
        channel.basic_reject(channel.basic_get("dying").delivery_tag, requeue=False)
    channel.flush()
    until(lambda: depth(connection, "free") == 1, 20, "the letter behind those that are refused")
    assert depth(connection, "full") == 1


def test_what_is_no_message_does_not_keep_others_from_their_dead_letters(connect):
    connection = connect()
    declare(connection, dying(), LETTERS)
    store = connection.transport.broker.store("moths")
    store.commit([Enqueue("strange", b"this is no message"), Bury("strange", "rejected")])
    send(connection, "plain")
    channel = connection.default_channel
    channel.basic_reject(channel.basic_get("moths").delivery_tag, requeue=False)
    channel.flush()
    until(lambda: depth(connection, "moths.dlq") == 1, 20)
    assert depth(connection, "moths") == 0
    with store.lock:
        assert list(store.look().buried) == ["strange"]
