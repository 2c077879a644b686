"""A batch of published messages: one commit, and with it one write to the disk, per queue."""

from collections.abc import Callable
from typing import Any

from ami.transports.objectstore.broker.envelope import Envelope
from ami.transports.objectstore.queue.commands import Enqueue

#: A batch is written when its messages are this large together.
BATCH_BYTES = 4 * 1024**2

#: What is stored where: a queue, the command, and whether it must be on disk when publishing returns.
Routed = tuple[str, Enqueue, bool]


class PublishBatch:
    """What ``kombu.Producer.batch`` publishes to. ``channel`` is the channel, a batch belongs to one alone."""

    def __init__(
        self,
        channel: Any,
        max_size: int,
        route: Callable[..., list[Routed]],
        store: Callable[[str, list[Enqueue], bool], None],
    ) -> None:
        self.channel = channel
        self._max_size, self._route, self._store = max_size, route, store
        self._by_queue: dict[str, list[Enqueue]] = {}
        self._durable: set[str] = set()
        self._count = self._bytes = 0

    def publish(self, message: Envelope, exchange: str = "", routing_key: str = "", **options: Any) -> None:
        """Add a message; it is stored with the batch. Raises as ``Channel.basic_publish`` does."""
        if (message.get("headers") or {}).get("eta"):
            self.flush()
            self.channel.basic_publish(message, exchange, routing_key, **options)
            return
        for queue, enqueue, durable in self._route(message, exchange, routing_key, bool(options.get("mandatory"))):
            self._by_queue.setdefault(queue, []).append(enqueue)
            if durable:
                self._durable.add(queue)
            self._count += 1
            self._bytes += len(enqueue.payload)
        if self._count >= self._max_size or self._bytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Store what was added; on an error it is unknown what is stored."""
        batch, durable = self._by_queue, self._durable
        self.discard()
        for queue, enqueues in batch.items():
            self._store(queue, enqueues, queue in durable)

    def discard(self) -> None:
        """Forget what was added and not stored."""
        self._by_queue, self._durable = {}, set()
        self._count = self._bytes = 0

    def close(self) -> None:
        self.discard()
