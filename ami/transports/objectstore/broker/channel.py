"""The channel: claims messages from stores for its consumers, and settles them."""

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from amqp.exceptions import NotAllowed, RecoverableConnectionError
from kombu.transport import virtual

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.consumer import Consumer, notify_cancelled
from ami.transports.objectstore.broker.consumer_turns import AT_ONCE
from ami.transports.objectstore.broker.dead_letters import DAMAGED
from ami.transports.objectstore.broker.declaration_mixin import DeclarationMixin
from ami.transports.objectstore.broker.envelope import Envelope, unseal
from ami.transports.objectstore.broker.exclusive_queues import refuse_locked
from ami.transports.objectstore.broker.publish_mixin import PublishMixin
from ami.transports.objectstore.broker.settling_mixin import SettlingMixin
from ami.transports.objectstore.broker.stored_message import StoredMessage
from ami.transports.objectstore.broker.unacked import QoS
from ami.transports.objectstore.queue.commands import Bury, Claim, Command, Return, Take
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.storage.errors import JQueueError, StorageError

log = logging.getLogger(__name__)

#: Numbers the deliveries of this process.
_turns = count(1)


class Channel(DeclarationMixin, PublishMixin, SettlingMixin, virtual.Channel):
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
        #: kombu does not acknowledge what these deliver.
        self.no_ack_consumers: set[str] = set()

    @property
    def broker(self) -> BrokerStorage:
        if self.connection is None:
            raise RecoverableConnectionError("the channel is closed")
        broker: BrokerStorage = self.connection.broker
        return broker

    # Consuming.

    def basic_consume(
        self,
        queue: str,
        no_ack: bool = False,
        callback: Any = None,
        consumer_tag: str = "",
        on_cancel: Callable[[str], Any] | None = None,
        **_: Any,
    ) -> str:
        """Consume from a queue; ``on_cancel`` is called with the tag when the queue was deleted.

        Raises amqp's NotFound, ResourceLocked, NotAllowed (a tag that is in use).
        """
        refuse_locked(self.broker, queue, self._queue(queue), self.owner)
        tag = consumer_tag or uuid.uuid4().hex
        if tag in self._by_tag:
            raise NotAllowed(f"NOT_ALLOWED - attempt to reuse consumer tag '{tag}'", (60, 20))
        self._by_tag[tag] = Consumer(tag, queue, no_ack, callback, on_cancel)
        if no_ack:
            self.no_ack_consumers.add(tag)
        self.connection.consumers_changed()
        self.connection.mark_ready(queue)
        return tag

    def basic_cancel(self, consumer_tag: str, **_: Any) -> None:
        """Stop a consumer; claimed messages that were not delivered yet are requeued."""
        consumer = self._by_tag.pop(consumer_tag, None)
        self.no_ack_consumers.discard(consumer_tag)
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

    def _forget_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer whose queue was deleted, with what it claimed there."""
        del self._by_tag[consumer.tag]
        self.no_ack_consumers.discard(consumer.tag)
        self._claimed = deque(item for item in self._claimed if item[0] is not consumer)
        self._settled.pop(consumer.queue, None)
        self.connection.consumers_changed()

    @property
    def consumers(self) -> Iterator[Consumer]:
        return iter(list(self._by_tag.values()))

    @property
    def next_turn(self) -> int | None:
        """The turn of the claimed message that is delivered next, the lowest first; None when nothing is claimed."""
        return min((consumer.served for consumer, _, _ in self._claimed), default=None)

    def cancel_consumers_of_deleted(self, ready: set[str]) -> None:
        """End the consumers of ``ready`` queues that were deleted. Raises amqp's ConsumerCancelled."""
        for consumer in self.consumers:
            if consumer.queue in ready and not self.broker.declarations.has_queue(consumer.queue):
                self._forget_consumer(consumer)
                notify_cancelled(consumer)

    def deliver_next(self) -> None:
        """Deliver a claimed message to the consumer that was served least recently."""
        number = min(range(len(self._claimed)), key=lambda number: self._claimed[number][0].served)
        consumer, entry, envelope = self._claimed[number]
        del self._claimed[number]
        consumer.served = next(_turns)
        self._deliver(consumer, entry, envelope)

    def may_consume(self, ready: set[str]) -> bool:
        """Whether a consumer of this channel could take messages of a ``ready`` queue."""
        return any(consumer.queue in ready and self.room(consumer) for consumer in self.consumers)

    def room(self, consumer: Consumer) -> int:
        """Return how many messages a consumer may claim now."""
        room = AT_ONCE - len(self._claimed)
        if not consumer.no_ack:
            estimate = self.qos.can_consume_max_estimate() if self.qos.can_consume() else 0
            room = room if estimate is None else min(room, estimate - len(self._claimed))
        return max(0, room)

    def claim(self, queue: str, no_ack: bool, count: int) -> list[Entry]:
        """Claim up to ``count`` messages, in one batch with what was settled in the queue.

        The leases are the connection's: any of its channels may `accept` the messages.
        """
        claim: Command = Take(count) if no_ack else Claim(count, self.owner, self.visibility_timeout)
        settled = self._settled.pop(queue, [])
        try:
            answers = self.broker.store(queue).commit([*settled, claim], durable=False)
        except JQueueError:
            self._settled[queue] = settled  # Settled again when the storage answers; a second time does no harm.
            raise
        self._after_settling(queue, settled)
        entries: list[Entry] = answers[-1]
        if entries and not no_ack:
            self.connection.renew_leases(queue)
        return entries

    def accept(self, consumer: Consumer, entry: Entry) -> None:
        """Keep a claimed message until it is delivered."""
        if (envelope := self._readable(consumer.queue, entry)) is not None:
            self._claimed.append((consumer, entry, envelope))

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
