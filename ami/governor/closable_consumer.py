"""A task consumer whose queues can be closed one by one, and opened again, without being forgotten."""

from collections.abc import Collection
from typing import Any

from kombu import Consumer

from ami import celery_internals


class ClosableConsumer(Consumer):
    """kombu's consumer that takes no message from its :attr:`closed` queues. All methods run on the loop's thread."""

    #: The names of the queues that are not consumed for the time being.
    closed: frozenset[str] = frozenset()

    _is_started = False

    def close_queues(self, names: Collection[str]) -> None:
        """Consume from every queue of this consumer but these, from now on and after it was cancelled.

        Messages that were delivered already still run.
        """
        self.closed = frozenset(names)
        if self._is_started:
            self._follow_closed()

    def is_closed(self, name: str) -> bool:
        """Whether the broker can send no message of the queue to this consumer."""
        return name not in self._active_tags

    def queue_of(self, message: Any) -> str | None:
        """Return the name of the queue that a message came from; None when that is not known."""
        tag = (message.delivery_info or {}).get("consumer_tag")
        names = [name for name, active in self._active_tags.items() if active == tag] or list(self._queues)
        return names[0] if len(names) == 1 else None

    def came_from_closed(self, message: Any) -> bool:
        """Whether a message came from a queue that is closed now, or may have."""
        return bool(self.closed) and self.queue_of(message) in (*self.closed, None)

    @property
    def unsettled(self) -> frozenset[Any]:
        """The delivery tags of the messages that are to run and are not settled; empty where that is not counted."""
        return frozenset()

    def lost_queues(self) -> list[str]:
        """Return the queues that should be consumed and are not: the broker or a command has taken their consumer."""
        if not self._is_started:
            return []
        known = self._known_tags()
        lost = [name for name in self._queues if name not in self.closed and self._active_tags.get(name) not in known]
        for name in lost:
            self._active_tags.pop(name, None)
        return lost

    def leaking_queues(self) -> list[str]:
        """Return the closed queues that are consumed nevertheless."""
        return [name for name in self.closed if not self.is_closed(name)]

    def consume(self, no_ack: bool | None = None) -> None:
        """Start consuming from the queues that are not closed; see ``kombu.Consumer.consume``."""
        self._is_started = True
        super().consume(no_ack)

    def cancel(self) -> None:
        """Stop consuming; see ``kombu.Consumer.cancel``."""
        self._is_started = False
        super().cancel()

    def _follow_closed(self) -> None:
        for name in [name for name in self._active_tags if name in self.closed]:
            self.channel.basic_cancel(self._active_tags.pop(name))
            self._active_queue_no_ack.pop(name, None)
        for name, queue in self._queues.items():
            if name not in self._active_tags:
                self._basic_consume(queue, no_ack=self.no_ack, nowait=True)

    def _basic_consume(self, queue: Any, *args: Any, **options: Any) -> Any:
        if queue.name in self.closed:
            return None
        return super()._basic_consume(queue, *args, **options)

    def _known_tags(self) -> Any:
        """Return the tags that the channel knows; AMQP and virtual transports keep them in different places."""
        return celery_internals.consumer_tags(self.channel)
