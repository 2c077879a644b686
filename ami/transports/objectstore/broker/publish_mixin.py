"""The part of a channel that publishes."""

from time import time
from typing import Any

from amqp.exceptions import ChannelError, MessageNacked, NotFound

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import Declarations
from ami.transports.objectstore.broker.envelope import Envelope, published, seal
from ami.transports.objectstore.broker.eta import eta_of
from ami.transports.objectstore.broker.names import check_name
from ami.transports.objectstore.broker.publish_attempts import publish_id
from ami.transports.objectstore.broker.queue_writer import enqueue_command, store_messages
from ami.transports.objectstore.broker.wheel import Delayed

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
        """Store a message in every queue it is routed to, or among the delayed ones; return when it is on disk.

        Raises amqp's NotFound, PreconditionFailed for a routing key that is too long, ChannelError where the message is
        ``mandatory`` and no queue takes it, and MessageNacked where a queue is full that rejects messages; the other
        queues have it then.
        """
        check_name("routing key", routing_key)
        declarations, queues = self._route(exchange, routing_key)
        if not queues:
            if mandatory:
                raise ChannelError("NO_ROUTE", (60, 40), "Basic.publish", NO_ROUTE)
            return
        with publish_id(message) as name:
            self._store(name, published(message, exchange, routing_key), declarations, queues)

    def _store(self, name: str, message: Envelope, declarations: Declarations, queues: list[str]) -> None:
        properties, content, due = message["properties"], seal(message), eta_of(message["headers"])
        durable = properties.get("delivery_mode") != 1
        if due is not None and due > time():
            self.broker.wheel.put([Delayed(name, due, content)], durable=durable)
            return
        is_full = False
        for queue in queues:
            record = declarations.queues[queue]
            command = enqueue_command(name, content, properties, record)
            [is_stored] = store_messages(
                self.broker, queue, [command], record, durable=durable and not record.is_transient
            )
            is_full |= not is_stored
        if is_full:
            info = properties["delivery_info"]
            raise MessageNacked(f"a queue of exchange '{info['exchange']}' is full; {info['routing_key']!r} not stored")

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
