"""The broker's exchanges, queues, dead-letter queues and policies, as kombu entities."""

from collections.abc import Iterator
from typing import Any

from kombu import Exchange, Queue

from ami.topology.topology import Topology
from ami.topology.workload import CONSUMER_TIMEOUT_SECONDS

EXCHANGE_NAME = "antenna"
UNROUTED = "antenna.unrouted"
DEAD_LETTER_EXCHANGE_NAME = "antenna.dlx"

#: Every requeue at warm shutdown and every broker restart counts; RabbitMQ 3.10 to 3.13 have no default, 4.x has 20
#: (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling).
DELIVERY_LIMIT = 20
#: RabbitMQ closes a connection from which it has received nothing for about twice this time.
HEARTBEAT_SECONDS = 20

#: kombu's exchange that delivers a delayed message when its delay has ended.
DELAYED_DELIVERY_EXCHANGE = "celery_delayed_delivery"

#: Topic, because native delayed delivery routes by ``<28 bits>.<routing key>`` and refuses direct exchanges.
EXCHANGE = Exchange(EXCHANGE_NAME, type="topic", durable=True, arguments={"alternate-exchange": UNROUTED})
UNROUTED_EXCHANGE = Exchange(UNROUTED, type="fanout", durable=True)
DEAD_LETTER_EXCHANGE = Exchange(DEAD_LETTER_EXCHANGE_NAME, type="direct", durable=True)

QUORUM = {"x-queue-type": "quorum"}


def task_queues(topology: Topology) -> tuple[Queue, ...]:
    """Return ``CELERY_TASK_QUEUES``: one quorum queue per workload, bound by its own name.

    Arguments, not policies, hold what must never be missing. ``x-dead-letter-routing-key`` is the queue's own name:
    a delayed message keeps the key ``0.0...1.antenna``, which matches no binding when it is dead-lettered.
    """
    return tuple(
        Queue(
            row.queue,
            EXCHANGE,
            routing_key=row.queue,
            durable=True,
            queue_arguments={
                **QUORUM,
                "x-delivery-limit": DELIVERY_LIMIT,
                "x-overflow": "reject-publish",
                "x-dead-letter-exchange": DEAD_LETTER_EXCHANGE_NAME,
                "x-dead-letter-routing-key": row.queue,
                "x-dead-letter-strategy": "at-least-once",
            },
        )
        for row in topology.workloads
    )


def dead_letter_queues(topology: Topology) -> tuple[Queue, ...]:
    """Return one dead-letter queue per workload; its messages never expire."""
    return tuple(
        Queue(row.dead_letter_queue, DEAD_LETTER_EXCHANGE, routing_key=row.queue, durable=True, queue_arguments=QUORUM)
        for row in topology.workloads
    )


def unrouted_queue() -> Queue:
    """Return the queue that keeps messages without a matching binding; RabbitMQ confirms such a message."""
    return Queue(UNROUTED, UNROUTED_EXCHANGE, routing_key="", durable=True, queue_arguments=QUORUM)


def own_queue_names(topology: Topology) -> set[str]:
    """Return the names of this topology's queues, without the delay queues."""
    return {*topology.queues, *(row.dead_letter_queue for row in topology.workloads), UNROUTED}


#: First RabbitMQ with a consumer timeout per queue; an older one refuses the whole policy.
CONSUMER_TIMEOUT_SINCE = (3, 12)


def policies(topology: Topology, version: tuple[int, ...] = CONSUMER_TIMEOUT_SINCE) -> Iterator[dict[str, Any]]:
    """Yield the policies for a RabbitMQ of ``version``: the settings that can change without redeclaring a queue."""
    timeout = {"consumer-timeout": CONSUMER_TIMEOUT_SECONDS * 1000} if version >= CONSUMER_TIMEOUT_SINCE else {}
    for row in topology.workloads:
        yield {
            "name": f"antenna-{row.key.lower()}",
            "pattern": f"^{row.queue.replace('.', '[.]')}$",
            "apply-to": "queues",
            "priority": 10,
            "definition": {"delivery-limit": DELIVERY_LIMIT, **timeout},
        }
    yield {
        "name": "antenna-delayed-unrouted",
        "pattern": f"^{DELAYED_DELIVERY_EXCHANGE}$",
        "apply-to": "exchanges",
        "priority": 10,
        "definition": {"alternate-exchange": UNROUTED},
    }
