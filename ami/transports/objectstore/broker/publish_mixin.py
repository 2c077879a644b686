"""The part of a channel that publishes."""

import uuid
from time import time
from typing import Any

from amqp.exceptions import ChannelError, NotFound

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import Declarations, QueueRecord
from ami.transports.objectstore.broker.envelope import Envelope, seal
from ami.transports.objectstore.broker.publish_batch import PublishBatch, Routed
from ami.transports.objectstore.queue.commands import Enqueue

#: AMQP's reply code for a mandatory message that no queue takes.
NO_ROUTE = 312


class PublishMixin:
    """Mixed into the channel; ``broker`` is the connection's."""

    @property
    def broker(self) -> BrokerStorage:
        raise NotImplementedError

    def basic_publish(
        self, message: Envelope, exchange: str = "", routing_key: str = "", mandatory: bool = False, **_: Any
    ) -> None:
        """Store a message in every queue it is routed to; return when it is on disk.

        Raises amqp's NotFound, and ChannelError where the message is ``mandatory`` and no queue takes it.
        """
        for queue, enqueue, durable in self._routed(message, exchange, routing_key, mandatory):
            self._store(queue, [enqueue], durable)

    def create_publish_batch(self, max_size: int) -> PublishBatch:
        """Return a batch of up to ``max_size`` messages, for ``kombu.Producer.batch``."""
        return PublishBatch(self, max_size, self._routed, self._store)

    def _store(self, queue: str, enqueues: list[Enqueue], durable: bool) -> None:
        self.broker.store(queue).commit(enqueues, durable=durable)
        self.broker.notifier(queue).notify()

    def _routed(self, message: Envelope, exchange: str, routing_key: str, mandatory: bool) -> list[Routed]:
        """Return what a message is in each queue it is routed to. Raises as `basic_publish` does."""
        declarations, queues = self._route(exchange, routing_key)
        if not queues:
            if mandatory:
                raise ChannelError("NO_ROUTE", (60, 40), "Basic.publish", NO_ROUTE)
            return []
        properties = message["properties"]
        properties["delivery_info"].update(exchange=exchange, routing_key=routing_key)
        name = str(properties.get("message_id") or properties.get("publish_id") or uuid.uuid4().hex)
        content = seal(message)
        routed: list[Routed] = []
        for queue in queues:
            record = declarations.queues[queue]
            enqueue = Enqueue(name, content, "", -_priority(properties), _expires(properties, record))
            routed.append((queue, enqueue, not record.is_transient and properties.get("delivery_mode") != 1))
        return routed

    def _route(self, exchange: str, routing_key: str) -> tuple[Declarations, list[str]]:
        """Return the declarations and the queues of a message; what is not found is looked up in fresh ones."""
        declarations = self.broker.declarations.current()
        if exchange and exchange not in declarations.exchanges:
            declarations = self.broker.declarations.current(fresh=True)
            if exchange not in declarations.exchanges:
                raise NotFound(f"NOT_FOUND - no exchange '{exchange}'", (60, 40), "Basic.publish")
        queues = declarations.route(exchange, routing_key)
        if not queues and self.broker.storage.is_remote:
            declarations = self.broker.declarations.current(fresh=True)
            queues = declarations.route(exchange, routing_key)
        return declarations, queues


def _priority(properties: dict[str, Any]) -> int:
    return min(max(int(properties.get("priority") or 0), 0), 255)


def _expires(properties: dict[str, Any], record: QueueRecord) -> float | None:
    """The moment at which a message expires: by its own TTL or the queue's, whichever ends first."""
    own = properties.get("expiration")
    ttls = [int(own) / 1000] if own is not None else []
    if record.message_ttl_seconds is not None:
        ttls.append(record.message_ttl_seconds)
    return time() + min(ttls) if ttls else None
