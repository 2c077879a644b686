"""The priority that a published message has on the broker itself, also after a retry."""

import logging
from typing import Any

import pytest

from ami.celery import priority
from tests.support.place import BROKERS, Place, until

on_every_broker = pytest.mark.parametrize("place", BROKERS, indirect=True)

T = "tests.support.worker_tasks.basic"


@on_every_broker
def test_message_has_a_level_of_its_broker(place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: Any):
    monkeypatch.setattr(priority, "_warned", set())
    place.queues("declare")
    with caplog.at_level(logging.WARNING, logger="ami"):
        for number in (None, 0, 4, 5, 9):
            place.send(f"{T}.succeed", priority=number)
    with place.app.connection_for_read() as connection, connection.channel() as channel:
        found = [channel.basic_get("antenna", no_ack=True).properties["priority"] for _ in range(5)]
        ignored = priority.why_ignored(connection)
    assert sorted(found) == ([0, 0, 0, 5, 5] if place.is_rabbitmq else [0, 0, 4, 5, 9])
    logged = [record.getMessage() for record in caplog.records if record.name == priority.logger.name]
    assert logged == ([f"Priority ignored: {ignored}"] if ignored else [])
    assert not (ignored and not place.is_rabbitmq), "a folder has priorities"


@on_every_broker
def test_retry_keeps_the_priority(place: Place):
    worker = place.worker("antenna", "--concurrency", "1")
    place.send(f"{T}.retry_once", 2, priority=9)
    until(lambda: place.ran("retry_once", state="RETRY"), what="it has run once")
    worker.stop()
    with place.consumer():
        until(lambda: place.depth("antenna") == 1, what="the retry is due")
    with place.app.connection_for_read() as connection, connection.channel() as channel:
        message = channel.basic_get("antenna", no_ack=True)
    assert message.headers["retries"] == 1
    assert message.properties["priority"] == (5 if place.is_rabbitmq else 9)
