"""The channel: publishes into stores, claims from them for its consumers, and settles what was claimed."""

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

from amqp.exceptions import ChannelError, NotFound
from kombu.transport import virtual

from ami.transports.objectstore.broker.broker_storage import Site
from ami.transports.objectstore.broker.dead_letters import DAMAGED, bury
from ami.transports.objectstore.broker.declarations import QueueRecord
from ami.transports.objectstore.broker.declaring_channel import Declaring
from ami.transports.objectstore.broker.envelope import Envelope, seal, unseal
from ami.transports.objectstore.broker.unacked import QoS
from ami.transports.objectstore.queue.commands import Ack, Bury, Claim, Command, Enqueue, Return, Take
from ami.transports.objectstore.queue.entry import Entry
from ami.transports.objectstore.queue.state import REJECTED
from ami.transports.objectstore.storage.errors import JobNotFoundError, JQueueError, StorageError

log = logging.getLogger(__name__)

#: So many messages one claim takes at most, and one fetch of a consumer that does not acknowledge.
AT_ONCE = 32

#: AMQP's reply code for a mandatory message that no queue takes.
NO_ROUTE = 312


@dataclass(frozen=True)
class Consumer:
    """One ``basic_consume``."""

    tag: str
    queue: str
    no_ack: bool
    callback: Callable[[Any], Any]


class StoredMessage(virtual.Message):
    """A message that knows which entry of which queue it is."""

    def __init__(self, payload: Envelope, channel: Any = None, place: tuple[str, str] | None = None, **kwargs: Any):
        super().__init__(payload, channel=channel, **kwargs)
        #: The queue and the entry's id.
        self.place = place


class Channel(Declaring, virtual.Channel):
    """A channel over stores."""

    QoS = QoS
    Message = StoredMessage
    supports_fanout = True
    body_encoding = None
    max_priority = 255
    from_transport_options = ("visibility_timeout",)

    #: Seconds after which a message that nobody renewed is delivered again.
    visibility_timeout = 60.0

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.owner = connection.owner
        self._by_tag: dict[str, Consumer] = {}
        self._claimed: deque[tuple[Consumer, Entry, Envelope]] = deque()
        self._settled: dict[str, list[Command]] = {}
        self._tags = count(1)

    @property
    def site(self) -> Site:
        """The connection's storage."""
        site: Site = self.connection.site
        return site

    # Publishing.

    def prepare_message(self, *args: Any, **kwargs: Any) -> Envelope:
        """Prepare a message; kombu keeps its properties from one try to the next, so that it is stored once."""
        message: Envelope = super().prepare_message(*args, **kwargs)
        message["properties"].setdefault("publish_id", uuid.uuid4().hex)
        return message

    def basic_publish(
        self, message: Envelope, exchange: str = "", routing_key: str = "", mandatory: bool = False, **_: Any
    ) -> None:
        """Store a message in every queue it is routed to; return when it is on disk.

        Raises amqp's NotFound, and ChannelError where the message is ``mandatory`` and no queue takes it.
        """
        layout = self.site.catalogue.current()
        if exchange and exchange not in layout.exchanges:
            layout = self.site.catalogue.current(fresh=True)
            if exchange not in layout.exchanges:
                raise NotFound(f"NOT_FOUND - no exchange '{exchange}'", (60, 40), "Basic.publish")
        queues = layout.route(exchange, routing_key)
        if not queues and self.site.storage.is_remote:
            layout = self.site.catalogue.current(fresh=True)
            queues = layout.route(exchange, routing_key)
        if not queues:
            if mandatory:
                raise ChannelError("NO_ROUTE", (60, 40), "Basic.publish", NO_ROUTE)
            return
        properties = message["properties"]
        properties["delivery_info"].update(exchange=exchange, routing_key=routing_key)
        name = str(properties.get("message_id") or properties.get("publish_id") or uuid.uuid4().hex)
        content = seal(message)
        for queue in queues:
            record = layout.queues[queue]
            enqueue = Enqueue(name, content, "", -_priority(properties), _expires(properties, record))
            durable = not record.is_transient and properties.get("delivery_mode") != 1
            self.site.store(queue).commit([enqueue], durable=durable)
            self.site.bell(queue).ring()

    # Consuming.

    def basic_consume(
        self, queue: str, no_ack: bool = False, callback: Any = None, consumer_tag: str = "", **_: Any
    ) -> str:
        """Consume from a queue. Raises amqp's NotFound."""
        self._queue(queue)
        tag = consumer_tag or uuid.uuid4().hex
        self._by_tag[tag] = Consumer(tag, queue, no_ack, callback)
        self.connection.consumers_changed()
        self.connection.expect(queue)
        return tag

    def basic_cancel(self, consumer_tag: str, **_: Any) -> None:
        """Stop a consumer; what it was not handed yet goes back."""
        consumer = self._by_tag.pop(consumer_tag, None)
        if consumer is None:
            return
        for item in [item for item in self._claimed if item[0] is consumer]:
            self._claimed.remove(item)
            if consumer.no_ack:
                continue  # It is off the broker already, as AMQP says.
            self.settle(consumer.queue, Return(item[1].id, counted=False, owner=self.owner))
        self.flush()
        self.connection.consumers_changed()
        record = self.site.catalogue.current().queues.get(consumer.queue)
        if record and record.auto_delete and not self.site.presences.consumers(consumer.queue):
            self.queue_delete(consumer.queue)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Return the next message, None when there is none. Raises amqp's NotFound."""
        self._queue(queue)
        command: Command = Take(1) if no_ack else Claim(1, self.owner, self.visibility_timeout)
        self.flush()
        [entries] = self.site.store(queue).commit([command], durable=False)
        for entry in entries:
            envelope = self._readable(queue, entry)
            if envelope is None:
                return self.basic_get(queue, no_ack)
            message = self._message(Consumer("", queue, no_ack, print), entry, envelope)
            if not no_ack:
                self.qos.append(message, message.delivery_tag)
                self.connection.holds(queue)
            return message
        return None

    @property
    def consumers(self) -> Iterator[Consumer]:
        """Every consumer of this channel."""
        return iter(list(self._by_tag.values()))

    def pump(self, ready: set[str], limit: int | None = None) -> int:
        """Hand out what the queues that are ``ready`` have, as far as prefetch and ``limit`` allow; return how many.

        A queue that had less than was asked for is taken out of ``ready``.
        """
        for consumer in self.consumers:
            room = self._room(consumer)
            if consumer.queue in ready and room and self._claim(consumer, room) < room:
                ready.discard(consumer.queue)
        self.flush()
        handed_out = 0
        while self._claimed and not self.closed and (limit is None or handed_out < limit):
            consumer, entry, envelope = self._claimed.popleft()
            handed_out += 1
            self._hand_out(consumer, entry, envelope)
        return handed_out

    def may_consume(self, ready: set[str]) -> bool:
        """Whether a consumer of this channel could be handed something of what is ``ready``."""
        return any(consumer.queue in ready and self._room(consumer) for consumer in self.consumers)

    def _room(self, consumer: Consumer) -> int:
        if consumer.no_ack:
            return max(0, AT_ONCE - len(self._claimed))
        if not self.qos.can_consume():
            return 0
        room = self.qos.can_consume_max_estimate()
        return AT_ONCE if room is None else max(0, min(AT_ONCE, room - len(self._claimed)))

    def _claim(self, consumer: Consumer, room: int) -> int:
        """Claim for a consumer, in one batch with what was settled in its queue; return how many came."""
        queue = consumer.queue
        claim: Command = Take(room) if consumer.no_ack else Claim(room, self.owner, self.visibility_timeout)
        settled = self._settled.pop(queue, [])
        try:
            answers = self.site.store(queue).commit([*settled, claim], durable=False)
        except JQueueError:
            self._settled[queue] = settled  # Once more when the storage answers: a second time does no harm.
            raise
        self._after_settling(queue, settled)
        entries: list[Entry] = answers[-1]
        for entry in entries:
            if (envelope := self._readable(queue, entry)) is not None:
                self._claimed.append((consumer, entry, envelope))
        if entries and not consumer.no_ack:
            self.connection.holds(queue)
        return len(entries)

    def _readable(self, queue: str, entry: Entry) -> Envelope | None:
        """Return a claimed message, None where its bytes are damaged: set aside, it keeps no other from running."""
        try:
            return self._envelope(queue, entry)
        except StorageError as error:
            if error.cause is not None:
                raise
            log.error("%s: message %s is set aside, since %s", queue, entry.id, error)
            self.settle(queue, Bury(entry.id, DAMAGED, self.owner))
            return None

    def _envelope(self, queue: str, entry: Entry) -> Envelope:
        return unseal(self.site.store(queue).payload(entry))

    def _hand_out(self, consumer: Consumer, entry: Entry, envelope: Envelope) -> None:
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
        """Acknowledge, return or bury: on the consuming thread together with the next claim, elsewhere at once."""
        if threading.get_ident() == self.connection.consuming_thread:
            self._settled.setdefault(queue, []).append(command)
            self.connection.expect(queue)
            return
        self._commit_settled(queue, [command])
        self.connection.wake()

    def flush(self) -> None:
        """Commit what was settled."""
        while self._settled:
            self._commit_settled(*self._settled.popitem())

    def _commit_settled(self, queue: str, commands: list[Command]) -> None:
        answers = self.site.store(queue).commit(commands, durable=False)
        for answer in answers:
            # Somebody took this consumer for dead: the message is being handled elsewhere, flagged.
            if isinstance(answer, Exception) and not isinstance(answer, JobNotFoundError):
                raise answer
        self._after_settling(queue, commands)

    def _after_settling(self, queue: str, commands: list[Command]) -> None:
        if any(isinstance(command, Return) for command in commands):
            self.site.bell(queue).ring()
        if self.site.store(queue).holds_buried:
            bury(self.site, queue)

    def reject(self, message: StoredMessage, requeue: bool) -> None:
        """Return a message, counting toward the delivery limit, or give it up."""
        if message.place is not None:
            queue, name = message.place
            self.settle(queue, Return(name, owner=self.owner) if requeue else Bury(name, REJECTED, self.owner))

    def acknowledge(self, message: StoredMessage) -> None:
        """Remove a message that was handled."""
        if message.place is not None:
            queue, name = message.place
            self.settle(queue, Ack(name))

    def give_back(self, messages: list[StoredMessage]) -> None:
        """Return what was delivered and not settled; it counts toward the delivery limit, as on RabbitMQ.

        A worker that ends for a message closes its connection in order, too: if that did not count, the message would
        end one worker after the other. What a consumer merely kept until its ETA does not count.
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
        """Stop the consumers and return what was not acknowledged, in order."""
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


def _priority(properties: dict[str, Any]) -> int:
    return min(max(int(properties.get("priority") or 0), 0), 255)


def _expires(properties: dict[str, Any], record: QueueRecord) -> float | None:
    """The moment at which a message has outlived its time: its own TTL or the queue's, whichever ends first."""
    own = properties.get("expiration")
    ttls = [int(own) / 1000] if own is not None else []
    if record.message_ttl_seconds is not None:
        ttls.append(record.message_ttl_seconds)
    return time() + min(ttls) if ttls else None
