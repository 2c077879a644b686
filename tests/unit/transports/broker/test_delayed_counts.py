"""Delayed messages are counted by the queue that they will go to, and each is read once."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kombu import Exchange, Queue

from ami.transports.objectstore.broker import delayed_counts
from ami.transports.objectstore.broker.delayed_counts import DelayedCounts
from tests.support.transports.messages import QUEUE, declare, send

OTHER = Queue("beetles", Exchange("site", type="topic", durable=True), routing_key="beetles", durable=True)


def later(seconds: float) -> dict[str, str]:
    return {"eta": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}


def test_delayed_messages_are_counted_by_queue(connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    connection = connect()
    declare(connection, QUEUE, OTHER)
    for number, key in enumerate(("moths.new", "moths.old", "beetles")):
        send(connection, number, key, headers=later(60 + 1000 * number))
    broker, counts = connection.transport.broker, DelayedCounts()
    assert counts.read(broker) == (3, {QUEUE.name: 2, OTHER.name: 1})
    monkeypatch.setattr(delayed_counts, "_queues_of", lambda *_: pytest.fail("it was read before"))
    assert counts.read(broker) == (3, {QUEUE.name: 2, OTHER.name: 1})


def test_more_than_are_read_at_once_are_told_together(connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    connection = connect()
    declare(connection, QUEUE)
    for number in range(3):
        send(connection, number, headers=later(60))
    broker, counts = connection.transport.broker, DelayedCounts()
    monkeypatch.setattr(delayed_counts, "MOST_READ", 2)
    assert counts.read(broker) == (3, None)
    assert counts.read(broker) == (3, {QUEUE.name: 3})
    monkeypatch.setattr(delayed_counts, "MOST_COUNTED", 2)
    assert counts.read(broker) == (3, None)
