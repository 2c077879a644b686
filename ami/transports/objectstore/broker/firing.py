"""Stores messages that are due in the queues to which they are routed now."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache, partial

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import QueueRecord
from ami.transports.objectstore.broker.envelope import unseal
from ami.transports.objectstore.broker.queue_writer import enqueue_command, store_messages
from ami.transports.objectstore.broker.wheel import Delayed
from ami.transports.objectstore.queue.commands import Enqueue

Addressed = tuple[Delayed, Enqueue]


def fire(broker: BrokerStorage, messages: Sequence[Delayed]) -> list[Delayed]:
    """Store the messages, durably; return those that no queue takes.

    A message keeps its id, by which a queue recognises one that was fired before. Raises StorageError.
    """
    refused: dict[str, Delayed] = {}
    by_queue: dict[str, list[Addressed]] = defaultdict(list)
    route = cache(partial(_route, broker))
    for message in messages:
        properties = unseal(message.payload)["properties"]
        info = properties["delivery_info"]
        records = route(str(info.get("exchange") or ""), str(info.get("routing_key") or ""))
        if not records:
            refused[message.id] = message
        for queue, record in records.items():
            by_queue[queue].append((message, enqueue_command(message.id, message.payload, properties, record)))
    for queue, addressed in by_queue.items():
        refused |= {message.id: message for message in _store(broker, queue, addressed)}
    return list(refused.values())


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
    are_stored = store_messages(broker, queue, enqueues, record, durable=not record.is_transient)
    return [message for (message, _), is_stored in zip(addressed, are_stored, strict=True) if not is_stored]
