"""The part of a channel that publishes."""

import uuid
from time import time
from typing import Any

from amqp.exceptions import ChannelError, MessageNacked, NotFound, PreconditionFailed

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import Declarations, QueueRecord
from ami.transports.objectstore.broker.envelope import Envelope, seal
from ami.transports.objectstore.broker.full_queues import store_message
from ami.transports.objectstore.broker.names import check_name
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

        Raises amqp's NotFound, PreconditionFailed for a routing key that is too long or an invalid
        expiration, ChannelError where the message is
        ``mandatory`` and no queue takes it, and MessageNacked where a queue is full that rejects messages; the other
        queues have it then.
        """
        check_name("routing key", routing_key)
        declarations, queues = self._route(exchange, routing_key)
        if not queues:
            if mandatory:
                raise ChannelError("NO_ROUTE", (60, 40), "Basic.publish", NO_ROUTE)
            return
        properties = message["properties"]
        properties["delivery_info"].update(exchange=exchange, routing_key=routing_key)
        name = str(properties.get("message_id") or properties.get("publish_id") or uuid.uuid4().hex)
        content = seal(message)
        is_full = False
        for queue in queues:
            record = declarations.queues[queue]
            enqueue = Enqueue(name, content, "", -_priority(properties, record), _expires(properties, record))
            durable = not record.is_transient and properties.get("delivery_mode") != 1
            is_full |= not store_message(self.broker, queue, enqueue, record, durable=durable)
        if is_full:
            raise MessageNacked(f"a queue of exchange '{exchange}' is full; {routing_key!r} was not stored there")

    def _route(self, exchange: str, routing_key: str) -> tuple[Declarations, list[str]]:
        """Return the declarations and the queues of a message; what is not found is looked up in fresh ones."""
        declarations = self.broker.declarations.current()
        if exchange and declarations.exchange(exchange) is None:
            declarations = self.broker.declarations.current(fresh=True)
            if declarations.exchange(exchange) is None:
                raise NotFound(f"NOT_FOUND - no exchange '{exchange}'", (60, 40), "Basic.publish")
        queues = declarations.route(exchange, routing_key)
        if not queues and self.broker.storage.is_remote:
            declarations = self.broker.declarations.current(fresh=True)
            queues = declarations.route(exchange, routing_key)
        return declarations, queues


def _priority(properties: dict[str, Any], record: QueueRecord) -> int:
    return min(max(int(properties.get("priority") or 0), 0), record.max_priority)


def _expires(properties: dict[str, Any], record: QueueRecord) -> float | None:
    """The moment at which a message expires: by its own TTL or the queue's, whichever ends first."""
    own = properties.get("expiration")
    ttls = [_milliseconds(own) / 1000] if own is not None else []
    if record.message_ttl_seconds is not None:
        ttls.append(record.message_ttl_seconds)
    return time() + min(ttls) if ttls else None


def _milliseconds(expiration: Any) -> int:
    """Raises amqp's PreconditionFailed for anything but a number of milliseconds."""
    if not str(expiration).isdecimal():
        raise PreconditionFailed(f"PRECONDITION_FAILED - invalid expiration {expiration!r}: milliseconds, 0 or more")
    return int(expiration)
