"""Queues that one connection has for itself, and that end with it."""

from amqp.exceptions import ResourceLocked

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import QueueRecord


def refuse_locked(broker: BrokerStorage, queue: str, record: QueueRecord, owner: str) -> None:
    """Raises amqp's ResourceLocked for an exclusive queue that another connection consumes.

    Not in a bucket: no lock shows there whether the other one lives, and a worker that is started again after its death
    has to get its queue for remote control.
    """
    if broker.is_local and record.exclusive and record.owner != owner and broker.consumers.count(queue):
        raise ResourceLocked(f"RESOURCE_LOCKED - queue '{queue}' is exclusive to another connection")


def is_left_behind(broker: BrokerStorage, queue: str, record: QueueRecord, owner: str) -> bool:
    """Whether an auto-delete or exclusive queue is another connection's that does not consume it."""
    return record.owner not in (None, owner) and not broker.consumers.count(queue)


def delete_queues(broker: BrokerStorage, queues: set[str]) -> None:
    """Delete the exclusive queues of a connection that closes."""
    while queues:
        queue = queues.pop()
        if broker.declarations.has_queue(queue):
            broker.delete(queue)
