"""The consumed queues as the broker sees them."""

from dataclasses import dataclass

from amqp.exceptions import NotFound
from kombu import Connection

from ami.celery.declaration import depth
from ami.topology.topology import Topology


@dataclass(frozen=True)
class QueueState:
    """A queue as the broker sees it; ``messages`` and ``consumers`` are None when it does not exist.

    ``is_held``: its workers live and take no tasks; a broker may count their consumers or not.
    """

    queue: str
    service: str
    messages: int | None
    consumers: int | None
    is_held: bool = False

    @property
    def is_consumed(self) -> bool:
        """Whether a worker lives that will take its messages."""
        return bool(self.consumers) or self.is_held


def queue_states(topology: Topology, connection: Connection) -> list[QueueState]:
    """Return each consumed queue's depth and consumers, by passive declares."""
    states = []
    for row in topology.workloads:
        # A failed passive declare closes its channel, so each queue has one of its own.
        channel = connection.channel()
        try:
            states.append(QueueState(row.queue, row.service, *depth(channel, row.queue)))
            channel.close()
        except NotFound:
            states.append(QueueState(row.queue, row.service, None, None))
    return states
