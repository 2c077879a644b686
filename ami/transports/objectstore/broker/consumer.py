"""A consumer of a queue, and how it learns that its queue was deleted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import ConsumerCancelled


@dataclass(eq=False)
class Consumer:
    """One ``basic_consume``; ``served`` orders consumers by their last delivery."""

    tag: str
    queue: str
    no_ack: bool
    callback: Callable[[Any], Any]
    on_cancel: Callable[[str], Any] | None = None
    served: int = 0


def notify_cancelled(consumer: Consumer) -> None:
    """Tell a consumer that its queue was deleted: by its ``on_cancel``, else by raising amqp's ConsumerCancelled.

    A worker connects anew then, and declares its queues.
    """
    if consumer.on_cancel is None:
        raise ConsumerCancelled(consumer.tag, (60, 30))
    consumer.on_cancel(consumer.tag)
