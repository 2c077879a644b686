"""Stores a message in a queue that may be full."""

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import QueueRecord
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.limits import QueueFullError


def store_message(broker: BrokerStorage, queue: str, enqueue: Enqueue, record: QueueRecord, *, durable: bool) -> bool:
    """Store a message and wake its consumers; return False where the queue is full and rejects messages."""
    store = broker.store(queue)
    if record.limit.messages is not None and record.limit.rejects_publish:
        # A process that only publishes does not know the queue's depth, so its answers are always True.
        store.look()
    [answer] = store.commit([enqueue], durable=durable)
    if isinstance(answer, QueueFullError):
        return False
    broker.notifier(queue).notify()
    return True
