"""What the broker at the other end can do, so that no operation depends on its name."""

from dataclasses import dataclass

from kombu import Connection


@dataclass(frozen=True)
class BrokerKind:
    """What one kind of broker can do.

    ``routes``: it keeps exchanges, bindings, alternate exchanges and dead letters, and knows which queues are missing.
    ``delays``: it keeps a delayed message until it is due. Elsewhere the worker does.
    ``delay_exchanges``: it does so in kombu's delay exchanges, by a routing key, for whole seconds. Where it has none
    and delays, it reads the header ``eta``, to the moment.
    ``confirms``: it confirms each message; where it does not, publishing itself waits.
    ``lists``: it lists the names of all its queues.
    ``priority_levels``: how many priorities it keeps apart; 0 if it ignores them. RabbitMQ's two are there since 4.0.
    ``is_managed``: it does so through RabbitMQ's management API, and has policies, alarms and a version there.
    """

    routes: bool = False
    delays: bool = False
    delay_exchanges: bool = False
    confirms: bool = False
    lists: bool = False
    priority_levels: int = 0
    is_managed: bool = False


#: By the ``driver_type`` of kombu's transport; any other one has queues and no more.
KINDS = {
    "amqp": BrokerKind(
        routes=True, delays=True, delay_exchanges=True, confirms=True, priority_levels=2, is_managed=True
    ),
    "objectstore": BrokerKind(routes=True, delays=True, lists=True, priority_levels=10),
}


def kind_of(connection: Connection) -> BrokerKind:
    """Return what the broker of this connection can do; it need not be connected."""
    return KINDS.get(connection.transport.driver_type, BrokerKind())
