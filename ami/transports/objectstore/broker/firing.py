"""Stores messages that are due in the queues to which they are routed now."""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from amqp.exceptions import AMQPError

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import QueueRecord
from ami.transports.objectstore.broker.envelope import unseal
from ami.transports.objectstore.broker.queue_writer import check_properties, enqueue_command, store_messages
from ami.transports.objectstore.broker.wheel import Delayed
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.storage.errors import StorageError

log = logging.getLogger(__name__)

Addressed = tuple[Delayed, Enqueue]


class Fired(NamedTuple):
    """What was not delivered: messages that no queue takes now, and those that none ever could."""

    refused: list[Delayed]
    invalid: list[Delayed]


def fire(broker: BrokerStorage, messages: Sequence[Delayed]) -> Fired:
    """Store the messages, durably; return those that were not delivered.

    A message keeps its id, by which a queue recognises one that was fired before. A queue that fails refuses its
    messages: those of the others are not fired again. Raises StorageError where the declarations cannot be read.
    """
    fired = Fired([], [])
    by_queue: dict[str, list[Addressed]] = defaultdict(list)
    route = cache(partial(_route, broker))
    for message in messages:
        try:
            properties = unseal(message.payload)["properties"]
            check_properties(properties)
        except (AMQPError, StorageError) as error:
            log.error("Delayed message %s cannot be delivered: %s", message.id, error, extra={"message_id": message.id})
            fired.invalid.append(message)
            continue
        addressed = _addressed(message, properties, route)
        if not addressed:
            fired.refused.append(message)
        for queue, one in addressed:
            by_queue[queue].append(one)
    for queue, those in by_queue.items():
        fired.refused.extend(_store(broker, queue, those))
    return fired


def _addressed(
    message: Delayed, properties: dict[str, Any], route: Callable[[str, str], dict[str, QueueRecord]]
) -> list[tuple[str, Addressed]]:
    """Return a command for each queue. Where it goes to several, each may refuse it for itself."""
    info = properties["delivery_info"]
    records = route(str(info.get("exchange") or ""), str(info.get("routing_key") or ""))
    if message.only_queue is not None:
        records = route("", message.only_queue)
    return [
        (
            queue,
            (
                message.to(queue) if len(records) > 1 else message,
                enqueue_command(message.id, message.payload, properties, record),
            ),
        )
        for queue, record in records.items()
    ]


def _route(broker: BrokerStorage, exchange: str, key: str) -> dict[str, QueueRecord]:
    """Return the queues of an address."""
    declarations = broker.declarations.current()
    queues = declarations.route(exchange, key)
    if not queues and broker.storage.is_remote:
        declarations = broker.declarations.current(fresh=True)
        queues = declarations.route(exchange, key)
    return {queue: declarations.queues[queue] for queue in queues}


def _store(broker: BrokerStorage, queue: str, addressed: Sequence[Addressed]) -> list[Delayed]:
    """Return the messages that the queue refuses."""
    record = broker.declarations.current().queues.get(queue)
    if record is None:
        return [message for message, _ in addressed]  # Deleted meanwhile.
    enqueues = [enqueue for _, enqueue in addressed]
    try:
        are_stored = store_messages(broker, queue, enqueues, record, durable=not record.is_transient)
    except StorageError as error:
        broker.log_once(f"Due messages are kept: {queue} cannot be written to: {error}", queue=queue)
        return [message for message, _ in addressed]
    return [message for (message, _), is_stored in zip(addressed, are_stored, strict=True) if not is_stored]
