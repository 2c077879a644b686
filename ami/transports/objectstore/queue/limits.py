"""How many messages may wait in a queue, and what happens to one too many."""

from typing import NamedTuple

from ami.transports.objectstore.storage.errors import JQueueError

#: Why a message is buried that made place for another, in RabbitMQ's words (https://www.rabbitmq.com/docs/dlx).
MAXLEN = "maxlen"


class QueueFullError(JQueueError):
    """A message was not stored: as many wait as may. The answer to an `Enqueue`, never raised by a store."""


class LengthLimit(NamedTuple):
    """At most ``messages`` wait; None is any number.

    One too many drops the first in line, or, where the queue ``rejects_publish``, is not stored.
    """

    messages: int | None = None
    rejects_publish: bool = False

    def rejects(self, depth: int) -> bool:
        """Whether a queue with ``depth`` waiting messages stores no more."""
        return self.messages is not None and self.rejects_publish and depth >= self.messages

    def is_exceeded(self, depth: int) -> bool:
        """Whether the first in line must go."""
        return self.messages is not None and not self.rejects_publish and depth > self.messages
