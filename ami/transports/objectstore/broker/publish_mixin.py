"""The part of a channel that publishes."""

from typing import Any

from amqp.exceptions import NotFound

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import Declarations
from ami.transports.objectstore.broker.envelope import Envelope
from ami.transports.objectstore.broker.publish_batch import PublishBatch


class PublishMixin:
    """Mixed into the channel; ``broker`` is the connection's."""

    @property
    def broker(self) -> BrokerStorage:
        raise NotImplementedError

    def basic_publish(
        self, message: Envelope, exchange: str = "", routing_key: str = "", mandatory: bool = False, **_: Any
    ) -> None:
        """Store a message in every queue it is routed to, or among the delayed ones; return when it is on disk.

        Raises amqp's NotFound, PreconditionFailed for a routing key that is too long or an invalid
        expiration, ChannelError where the message is
        ``mandatory`` and no queue takes it, and MessageNacked where a queue is full that rejects messages; the other
        queues have it then.
        """
        self.create_publish_batch(1).publish(message, exchange, routing_key, mandatory)

    def create_publish_batch(self, max_size: int) -> PublishBatch:
        """Return a batch of up to ``max_size`` messages, for ``kombu.Producer.batch``."""
        return PublishBatch(self, self.broker, self._route, max_size)

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
