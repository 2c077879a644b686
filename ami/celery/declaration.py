"""Declares what the topology needs on the broker, before the first publisher."""

from collections.abc import Collection, Iterator
from typing import Any

from amqp.exceptions import NotFound, PreconditionFailed
from kombu import Connection, Queue
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    declare_native_delayed_delivery_exchanges_and_queues,
)

from ami.celery.broker_kind import kind_of
from ami.topology import broker
from ami.topology.table import FALLBACK
from ami.topology.topology import Topology

#: The type of kombu's delay queues; Celery's worker declares the same (``broker_native_delayed_delivery_queue_type``).
DELAY_QUEUE_TYPE = "quorum"


def declare(topology: Topology, connection: Connection, own: Collection[str] = ()) -> list[str]:
    """Declare queues, dead letters, the alternate exchange and the delay exchanges; return the queues' names.

    A queue that exists keeps the bindings it has, unless it is one of ``own``: those take their routing keys
    from the fallback queue, where a rollback put them: a queue's consumer owns its key. On a broker that does not
    route only the queues themselves are declared, and delay exchanges only on one that delays.

    Raises:
        amqp.exceptions.PreconditionFailed: a queue exists with other arguments.
    """
    queues, kind = broker.task_queues(topology), kind_of(connection)
    if not kind.routes:
        with connection.channel() as channel:
            for queue in queues:
                queue(channel).declare()
        return [queue.name for queue in queues]
    kept = (broker.unrouted_queue(), *broker.dead_letter_queues(topology))
    with connection.channel() as channel:
        broker.EXCHANGE(channel).declare()
        for queue in kept:
            queue(channel).declare()
    if kind.delay_exchanges:
        declare_native_delayed_delivery_exchanges_and_queues(connection, DELAY_QUEUE_TYPE)
    for queue in queues:
        if queue.name in own or not _exists(connection, queue.name):
            _declare_with_keys(connection, queue)
        elif kind.delay_exchanges:  # Whichever queue has the key: it is the exchange that is bound.
            with connection.channel() as channel:
                broker.EXCHANGE(channel).bind_to(broker.DELAYED_DELIVERY_EXCHANGE, routing_key=f"#.{queue.name}")
    return [queue.name for queue in (*kept, *queues)]


def _declare_with_keys(connection: Connection, queue: Queue) -> None:
    with connection.channel() as channel:
        queue(channel).declare()
        if queue.name != FALLBACK:
            for key in routing_keys(queue.name):
                channel.queue_unbind(FALLBACK, broker.EXCHANGE_NAME, routing_key=key)
    if kind_of(connection).delay_exchanges:
        bind_queue_to_native_delayed_delivery_exchange(connection, queue)


def _exists(connection: Connection, queue: str) -> bool:
    # A failed passive declare closes its channel, so it has one of its own.
    channel = connection.channel()
    try:
        depth(channel, queue)
    except NotFound:
        return False
    channel.close()
    return True


def conflicts(topology: Topology, connection: Connection) -> Iterator[PreconditionFailed]:
    """Yield why the exchange or a queue that exists is not as this topology declares it. Changes nothing."""
    exchange, queues = broker.EXCHANGE, broker.task_queues(topology)
    for bind, declare_as in ((exchange, "declare"), *((queue, "queue_declare") for queue in queues)):
        # An error closes its channel, so each has one of its own.
        channel = connection.channel()
        declare_it = getattr(bind(channel), declare_as)
        try:
            declare_it(passive=True)
            declare_it()
            channel.close()
        except NotFound:
            continue
        except PreconditionFailed as error:
            yield error


def routing_keys(queue: str) -> tuple[str, str]:
    """Return the two keys that reach ``queue``: its own name, and the same behind a delay's 28 bits."""
    return queue, f"#.{queue}"


def depth(channel: Any, queue: str) -> tuple[int, int]:
    """Return (messages ready, consumers) of ``queue`` by a passive declare.

    Raises:
        amqp.exceptions.NotFound: the queue does not exist; the channel is closed by it.
    """
    found = channel.queue_declare(queue=queue, passive=True)
    return int(found.message_count), int(getattr(found, "consumer_count", 0) or 0)
