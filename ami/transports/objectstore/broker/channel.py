"""The channel: claims messages from stores for its consumers, and settles them."""

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from time import time
from typing import Any

from kombu.transport import virtual

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.dead_letters import DAMAGED, move_dead_letters
from ami.transports.objectstore.broker.declaration_mixin import DeclarationMixin
from ami.transports.objectstore.broker.envelope import Envelope, unseal
from ami.transports.objectstore.broker.expiry import mark_requeued
from ami.transports.objectstore.broker.publish_mixin import PublishMixin
from ami.transports.objectstore.broker.unacked import QoS
from ami.transports.objectstore.queue.commands import Ack, Bury, Claim, Command, Return, Take
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.state import REJECTED
from ami.transports.objectstore.storage.errors import JobNotFoundError, JQueueError, StorageError

log = logging.getLogger(__name__)

#: The most messages of one claim, and of one fetch of a consumer that does not acknowledge.
AT_ONCE = 32


@dataclass(frozen=True)
class Consumer:
    """One ``basic_consume``."""

    tag: str
    queue: str
    no_ack: bool
    callback: Callable[[Any], Any]


class StoredMessage(virtual.Message):
    """A message with its place: the queue, and the id of its entry there."""

    def __init__(self, payload: Envelope, channel: Any = None, place: tuple[str, str] | None = None, **kwargs: Any):
        super().__init__(payload, channel=channel, **kwargs)
        self.place = place


class Channel(DeclarationMixin, PublishMixin, virtual.Channel):
    """A channel over one store per queue."""

    QoS = QoS
    Message = StoredMessage
    supports_fanout = True
    body_encoding = None
    max_priority = 255
    from_transport_options = ("visibility_timeout",)

    #: Seconds after which a message whose lease was not renewed is delivered again.
    visibility_timeout = 60.0

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.owner = connection.owner
        self._by_tag: dict[str, Consumer] = {}
        self._claimed: deque[tuple[Consumer, Entry, Envelope]] = deque()
        self._settled: dict[str, list[Command]] = {}
        self._tags = count(1)

    @property
    def broker(self) -> BrokerStorage:
        broker: BrokerStorage = self.connection.broker
        return broker

    def prepare_message(self, *args: Any, **kwargs: Any) -> Envelope:
        """Give the message an id; kombu keeps it from one try to the next, so that the message is stored once."""
        message: Envelope = super().prepare_message(*args, **kwargs)
        message["properties"].setdefault("publish_id", uuid.uuid4().hex)
        return message

    # Consuming.

    def basic_consume(
        self, queue: str, no_ack: bool = False, callback: Any = None, consumer_tag: str = "", **_: Any
    ) -> str:
        """Consume from a queue. Raises amqp's NotFound."""
        self._queue(queue)
        tag = consumer_tag or uuid.uuid4().hex
        self._by_tag[tag] = Consumer(tag, queue, no_ack, callback)
        self.connection.consumers_changed()
        self.connection.mark_ready(queue)
        return tag

    def basic_cancel(self, consumer_tag: str, **_: Any) -> None:
        """Stop a consumer; claimed messages that were not delivered yet are requeued."""
        consumer = self._by_tag.pop(consumer_tag, None)
        if consumer is None:
            return
        for item in [item for item in self._claimed if item[0] is consumer]:
            self._claimed.remove(item)
            if consumer.no_ack:
                continue  # It is off the queue already, as AMQP defines it.
            self.settle(consumer.queue, Return(item[1].id, counted=False, owner=self.owner))
        self.flush()
        self.connection.consumers_changed()
        record = self.broker.declarations.current().queues.get(consumer.queue)
        if record and record.auto_delete and not self.broker.consumers.count(consumer.queue):
            self.queue_delete(consumer.queue)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Return the next message, None when there is none. Raises amqp's NotFound."""
        self._queue(queue)
        command: Command = Take(1) if no_ack else Claim(1, self.owner, self.visibility_timeout)
        self.flush()
        [entries] = self.broker.store(queue).commit([command], durable=False)
        for entry in entries:
            envelope = self._readable(queue, entry)
            if envelope is None:
                return self.basic_get(queue, no_ack)
            message = self._message(Consumer("", queue, no_ack, print), entry, envelope)
            if not no_ack:
                self.qos.append(message, message.delivery_tag)
                self.connection.renew_leases(queue)
            return message
        return None

    @property
    def consumers(self) -> Iterator[Consumer]:
        return iter(list(self._by_tag.values()))

    def pump(self, ready: set[str], limit: int | None = None) -> int:
        """Deliver messages of the ``ready`` queues, as far as prefetch and ``limit`` allow; return how many.

        A queue that had fewer messages than the consumer could take is removed from ``ready``.
        """
        for consumer in self.consumers:
            room = self._room(consumer)
            if consumer.queue in ready and room and self._claim(consumer, room) < room:
                ready.discard(consumer.queue)
        self.flush()
        delivered = 0
        while self._claimed and not self.closed and (limit is None or delivered < limit):
            consumer, entry, envelope = self._claimed.popleft()
            delivered += 1
            self._deliver(consumer, entry, envelope)
        return delivered

    def may_consume(self, ready: set[str]) -> bool:
        """Whether a consumer of this channel could take messages of a ``ready`` queue."""
        return any(consumer.queue in ready and self._room(consumer) for consumer in self.consumers)

    def _room(self, consumer: Consumer) -> int:
        if consumer.no_ack:
            return max(0, AT_ONCE - len(self._claimed))
        if not self.qos.can_consume():
            return 0
        room = self.qos.can_consume_max_estimate()
        return AT_ONCE if room is None else max(0, min(AT_ONCE, room - len(self._claimed)))

    def _claim(self, consumer: Consumer, room: int) -> int:
        """Claim for a consumer, in one batch with what was settled in its queue; return how many messages came."""
        queue = consumer.queue
        claim: Command = Take(room) if consumer.no_ack else Claim(room, self.owner, self.visibility_timeout)
        settled = self._settled.pop(queue, [])
        try:
            answers = self.broker.store(queue).commit([*settled, claim], durable=False)
        except JQueueError:
            self._settled[queue] = settled  # Settled again when the storage answers; a second time does no harm.
            raise
        self._after_settling(queue, settled)
        entries: list[Entry] = answers[-1]
        for entry in entries:
            if (envelope := self._readable(queue, entry)) is not None:
                self._claimed.append((consumer, entry, envelope))
        if entries and not consumer.no_ack:
            self.connection.renew_leases(queue)
        return len(entries)

    def _readable(self, queue: str, entry: Entry) -> Envelope | None:
        """Return a claimed message. One whose bytes are damaged is buried, so that others run, and None is returned."""
        try:
            return self._envelope(queue, entry)
        except StorageError as error:
            if error.cause is not None:
                raise
            log.error(
                "Message %s of %s is damaged; burying it: %s",
                entry.id,
                queue,
                error,
                extra={"message_id": entry.id, "queue": queue},
            )
            self.settle(queue, Bury(entry.id, DAMAGED, self.owner))
            return None

    def _envelope(self, queue: str, entry: Entry) -> Envelope:
        return unseal(self.broker.store(queue).payload(entry))

    def _deliver(self, consumer: Consumer, entry: Entry, envelope: Envelope) -> None:
        message = self._message(consumer, entry, envelope)
        if not consumer.no_ack:
            self.qos.append(message, message.delivery_tag)
        consumer.callback(message)

    def _message(self, consumer: Consumer, entry: Entry, envelope: Envelope) -> StoredMessage:
        properties = envelope["properties"]
        properties["delivery_tag"] = next(self._tags)
        properties["delivery_info"].update(redelivered=entry.redelivered, consumer_tag=consumer.tag)
        if entry.deliveries:
            envelope["headers"]["x-delivery-count"] = entry.deliveries
        return StoredMessage(envelope, channel=self, place=(consumer.queue, entry.id))

    # Settling.

    def settle(self, queue: str, command: Command) -> None:
        """Acknowledge, requeue or bury: on the consuming thread together with the next claim, elsewhere at once."""
        if threading.get_ident() == self.connection.consuming_thread:
            self._settled.setdefault(queue, []).append(command)
            self.connection.mark_ready(queue)
            return
        self._commit_settled(queue, [command])
        self.connection.wake()

    def flush(self) -> None:
        while self._settled:
            self._commit_settled(*self._settled.popitem())

    def _commit_settled(self, queue: str, commands: list[Command]) -> None:
        answers = self.broker.store(queue).commit(commands, durable=False)
        for answer in answers:
            # JobNotFoundError: this consumer was taken for dead, and the message was redelivered, flagged.
            if isinstance(answer, Exception) and not isinstance(answer, JobNotFoundError):
                raise answer
        self._after_settling(queue, commands)

    def _after_settling(self, queue: str, commands: list[Command]) -> None:
        if any(isinstance(command, Return) for command in commands):
            mark_requeued(self.broker, queue)
            self.broker.notifier(queue).notify()
        if self.broker.store(queue).holds_buried:
            move_dead_letters(self.broker, queue)

    def reject(self, message: StoredMessage, requeue: bool) -> None:
        """Requeue a message, counting toward the delivery limit, or bury it."""
        if message.place is not None:
            queue, name = message.place
            self.settle(queue, Return(name, owner=self.owner) if requeue else Bury(name, REJECTED, self.owner))

    def acknowledge(self, message: StoredMessage) -> None:
        if message.place is not None:
            queue, name = message.place
            self.settle(queue, Ack(name))

    def requeue_unacked(self, messages: list[StoredMessage]) -> None:
        """Requeue delivered messages that were not settled; it counts toward the delivery limit, as on RabbitMQ.

        A worker that a message crashes may still close its connection in order: if that did not count, the message
        would crash one worker after the other. A message that was held until its ETA is not counted.
        """
        by_queue: dict[str, list[Command]] = {}
        for message in messages:
            if message.place is not None:
                queue, name = message.place
                counted = not _is_early(message)
                by_queue.setdefault(queue, []).append(Return(name, counted=counted, owner=self.owner))
        for queue, commands in by_queue.items():
            self._commit_settled(queue, commands)

    def close(self) -> None:
        """Stop the consumers and requeue what was not acknowledged."""
        if self.closed:
            return
        if self.connection.is_inherited:
            self.closed: bool = True
            return
        for tag in list(self._by_tag):
            self.basic_cancel(tag)
        self.flush()
        super().close()


def _is_early(message: StoredMessage) -> bool:
    """Whether its task's ETA, as Celery writes it, is still to come."""
    eta = message.headers.get("eta")
    try:
        moment = datetime.fromisoformat(eta) if eta else None
        return moment is not None and (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() > time()
    except (TypeError, ValueError, OverflowError):
        return False
