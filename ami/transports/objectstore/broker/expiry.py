"""Sweeps queues whose messages expire: dead letters are moved, and the next sweep is marked."""

import time

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.dead_letters import move_dead_letters
from ami.transports.objectstore.queue.commands import Sweep
from ami.transports.objectstore.storage.errors import JQueueError

#: The shortest time between two sweeps of a queue.
PAUSE_SECONDS = 0.02

#: A queue of which something expires within so many seconds stays in memory: reading it takes longer than a sweep.
KEPT_SECONDS = 10.0

#: A queue whose sweep fails is swept again after so long.
FAILED_SECONDS = 30.0


def sweep(broker: BrokerStorage, queue: str) -> None:
    """Bury what has expired in a queue, move it to its dead letters, and mark the next expiry. Raises StorageError.

    A queue that this process has not read is read for that, and its memory freed when nothing expires soon.
    """
    if queue not in broker.declarations.current().queues:
        return
    store, loaded = broker.store(queue), broker.expiry_marks.loaded
    if not store.is_followed:
        loaded.add(queue)
    with store.lock:
        if store.look().is_overdue(time.time()):
            store.commit([Sweep()], durable=False)
    while store.holds_buried and move_dead_letters(broker, queue):
        pass
    with store.lock:
        following = store.look().next_expiry()
        if queue in loaded and (following is None or following > time.time() + KEPT_SECONDS):
            loaded.discard(queue)
            store.release()
    if following is not None:
        broker.expiry_marks.mark(queue, max(following, time.time() + PAUSE_SECONDS))


def mark_requeued(broker: BrokerStorage, queue: str) -> None:
    """Mark the next expiry after messages were requeued: while they were leased, a sweep did not see them."""
    store = broker.store(queue)
    with store.lock:
        following = store.look().next_expiry()
    if following is not None:
        broker.expiry_marks.ensure(queue, max(following, time.time()))


def sweep_or_mark(broker: BrokerStorage, queue: str) -> None:
    """Sweep a queue; one that fails is swept again later, and does not hold up the others."""
    try:
        sweep(broker, queue)
    except JQueueError as error:
        broker.log_once(f"Expired messages cannot be moved; trying again: {error}", queue=queue)
        broker.expiry_marks.mark(queue, time.time() + FAILED_SECONDS)
