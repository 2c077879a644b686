"""A batch of published messages: one commit, and with it one write to the disk, per queue."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import time
from typing import Any

from amqp.exceptions import ChannelError, MessageNacked

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import Declarations, QueueRecord
from ami.transports.objectstore.broker.envelope import Envelope, published, seal
from ami.transports.objectstore.broker.eta import eta_of
from ami.transports.objectstore.broker.names import check_name
from ami.transports.objectstore.broker.publish_attempts import PublishAttempt, begin_attempt, remember_failed
from ami.transports.objectstore.broker.queue_writer import check_properties, enqueue_command, store_messages
from ami.transports.objectstore.broker.wheel import Delayed
from ami.transports.objectstore.queue.commands import Enqueue

#: AMQP's reply code for a mandatory message that no queue takes.
NO_ROUTE = 312

#: A batch is written when its messages are this large together.
BATCH_BYTES = 4 * 1024**2

Route = Callable[[str, str], tuple[Declarations, list[str]]]


@dataclass
class _ForQueue:
    """The messages of one queue; ``is_durable`` if one of them must be on disk when publishing returns."""

    record: QueueRecord
    commands: list[Enqueue] = field(default_factory=list)
    is_durable: bool = False


class PublishBatch:
    """What ``kombu.Producer.batch`` publishes to. ``channel`` is the channel, a batch belongs to one alone."""

    def __init__(self, channel: Any, broker: BrokerStorage, route: Route, max_size: int) -> None:
        self.channel = channel
        self._broker, self._route, self._max_size = broker, route, max_size
        self.discard()

    def publish(
        self, message: Envelope, exchange: str = "", routing_key: str = "", mandatory: bool = False, **_: Any
    ) -> None:
        """Add a message; it is stored with the batch. Raises as ``Channel.basic_publish`` does."""
        check_name("routing key", routing_key)
        check_properties(message["properties"])
        declarations, queues = self._route(exchange, routing_key)
        if not queues:
            if mandatory:
                raise ChannelError("NO_ROUTE", (60, 40), "Basic.publish", NO_ROUTE)
            return
        attempt = begin_attempt(message)
        self._attempts.append(attempt)
        self._place(attempt.name, published(message, exchange, routing_key), declarations, queues)
        if len(self._attempts) >= self._max_size or self._bytes >= BATCH_BYTES:
            self.flush()

    def _place(self, name: str, message: Envelope, declarations: Declarations, queues: list[str]) -> None:
        properties, content, due = message["properties"], seal(message), eta_of(message["headers"])
        is_durable = properties.get("delivery_mode") != 1
        self._bytes += len(content)
        if due is not None and due > time():
            self._delayed.append(Delayed(name, due, content))
            self._is_delay_durable |= is_durable
            return
        for queue in queues:
            record = declarations.queues[queue]
            waiting = self._by_queue.setdefault(queue, _ForQueue(record))
            waiting.commands.append(enqueue_command(name, content, properties, record))
            waiting.is_durable |= is_durable and not record.is_transient

    def flush(self) -> None:
        """Store what was added. After an error it is unknown what is stored; a retry stores nothing twice.

        Raises MessageNacked where a queue is full that rejects messages; the other queues have theirs then.
        """
        attempts, delayed, by_queue, is_durable = self._attempts, self._delayed, self._by_queue, self._is_delay_durable
        self.discard()
        try:
            if delayed:
                self._broker.wheel.put(delayed, durable=is_durable)
            full = [queue for queue, waiting in by_queue.items() if not self._store(queue, waiting)]
            if full:
                raise MessageNacked(f"is full, so a message was not stored there: {', '.join(full)}")
        except BaseException:
            remember_failed(attempts)
            raise

    def _store(self, queue: str, waiting: _ForQueue) -> bool:
        return all(store_messages(self._broker, queue, waiting.commands, waiting.record, durable=waiting.is_durable))

    def discard(self) -> None:
        """Forget what was added and not stored."""
        self._attempts: list[PublishAttempt] = []
        self._delayed: list[Delayed] = []
        self._by_queue: dict[str, _ForQueue] = {}
        self._is_delay_durable = False
        self._bytes = 0

    def close(self) -> None:
        self.discard()
