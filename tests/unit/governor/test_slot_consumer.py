"""Slots on a virtual transport: one message each, settled from any thread, and none for messages due later."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from queue import Empty
from typing import Any

import pytest
from kombu import Connection, Exchange, Producer, Queue

from ami.governor.slot_consumer import SlotConsumer

QUEUE = Queue("intake", Exchange("intake"), routing_key="intake")


class Worker:
    """A worker that keeps its messages until a test settles them."""

    def __init__(self, connection: Connection) -> None:
        self.channel = connection.default_channel
        self.settled_on: list[threading.Thread] = []
        self.consumer = SlotConsumer(self.channel, [QUEUE], on_message=None)
        self.consumer.manage(1, lambda function: function(), self._settled, lambda _: False)
        self.messages: list[Any] = []
        self.consumer.on_message = self.messages.append
        self.consumer.consume()

    def _settled(self, _: Any) -> None:
        self.settled_on.append(threading.current_thread())

    def send(self, number: int, eta: datetime | None = None) -> None:
        producer = Producer(self.channel, QUEUE.exchange, QUEUE.routing_key)
        for _ in range(number):
            producer.publish({}, headers={"eta": eta.isoformat() if eta else None}, declare=[QUEUE])

    def drain(self) -> int:
        """Fetch what the slots allow; return how many messages the worker has received so far."""
        while True:
            try:
                self.channel.drain_events(timeout=0)
            except Empty:
                return len(self.messages)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Connection("memory://") as connection:
        made = Worker(connection)
        yield made
        made.channel.queue_purge(QUEUE.name)


def test_there_is_one_message_for_each_slot(worker: Worker) -> None:
    worker.send(5)
    assert worker.drain() == 0
    worker.consumer.slots = 2
    assert worker.drain() == 2
    worker.messages[0].ack()
    assert worker.drain() == 3


def test_a_message_settled_on_another_thread_frees_its_slot(worker: Worker) -> None:
    worker.consumer.slots = 1
    worker.send(2)
    assert worker.drain() == 1
    thread = threading.Thread(target=worker.messages[0].ack)
    thread.start()
    thread.join()
    assert worker.settled_on == []
    assert worker.drain() == 2
    assert worker.settled_on == [threading.current_thread()]


def test_a_message_that_is_due_later_takes_no_slot_until_it_is(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.consumer.slots = 1
    now = datetime.now(UTC)
    worker.send(3, eta=now + timedelta(hours=1))
    worker.send(2)
    assert worker.drain() == 4
    assert not worker.consumer.over_capacity
    monkeypatch.setattr("ami.governor.slot_consumer.time.time", lambda: now.timestamp() + 3600)
    assert worker.consumer.over_capacity
    worker.messages[0].reject(requeue=True)
    worker.messages[1].reject(requeue=True)
    worker.messages[2].reject(requeue=True)
    assert not worker.consumer.over_capacity
    assert worker.drain() == 4


def test_a_message_of_an_earlier_fetch_is_requeued(worker: Worker) -> None:
    worker.send(1)
    worker.channel.qos.can_consume = lambda: True  # What is under way does not ask again.
    worker.channel.drain_events(timeout=0)
    assert worker.messages == []
    assert worker.channel.queue_declare(QUEUE.name, passive=True).message_count == 1
