"""Stores messages in one queue, which may be full, and in which they may expire."""

from collections.abc import Sequence
from time import time
from typing import Any

from amqp.exceptions import PreconditionFailed

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.declarations import QueueRecord
from ami.transports.objectstore.broker.queue_arguments import LONGEST_MILLISECONDS
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.limits import QueueFullError


def enqueue_command(name: str, content: bytes, properties: dict[str, Any], record: QueueRecord) -> Enqueue:
    """Return the command that stores a message in a queue; ``name`` is its id there."""
    return Enqueue(name, content, "", -_priority(properties, record), expires(properties, record))


def expires(properties: dict[str, Any], record: QueueRecord) -> float | None:
    """The moment at which a message expires: by its own TTL or the queue's, whichever ends first."""
    own = properties.get("expiration")
    ttls = [_milliseconds(own) / 1000] if own is not None else []
    if record.message_ttl_seconds is not None:
        ttls.append(record.message_ttl_seconds)
    return time() + min(ttls) if ttls else None


def check_properties(properties: dict[str, Any]) -> None:
    """Raise amqp's PreconditionFailed for a message whose expiration or priority no queue could read."""
    if properties.get("expiration") is not None:
        _milliseconds(properties["expiration"])
    _number(properties)


def _milliseconds(expiration: Any) -> int:
    """Raises amqp's PreconditionFailed for anything but a number of milliseconds."""
    text = str(expiration)
    if len(text) > 10 or not text.isdecimal() or int(text) > LONGEST_MILLISECONDS:
        raise PreconditionFailed(
            f"PRECONDITION_FAILED - invalid expiration {text[:40]!r}: milliseconds, 0 to {LONGEST_MILLISECONDS}"
        )
    return int(text)


def _number(properties: dict[str, Any]) -> int:
    """Raises amqp's PreconditionFailed for a priority that is not a number."""
    try:
        return int(properties.get("priority") or 0)
    except (TypeError, ValueError, OverflowError):
        text = str(properties["priority"])[:40]
        raise PreconditionFailed(f"PRECONDITION_FAILED - invalid priority {text!r}: a whole number") from None


def _priority(properties: dict[str, Any], record: QueueRecord) -> int:
    return min(max(_number(properties), 0), record.max_priority)


def store_messages(
    broker: BrokerStorage, queue: str, enqueues: Sequence[Enqueue], record: QueueRecord, *, durable: bool
) -> list[bool]:
    """Store messages and wake the queue's consumers; return for each whether it was stored.

    A message is refused by a queue that is full and rejects publishes. Raises StorageError.
    """
    store = broker.store(queue)
    # A process that only publishes does not know the queue's depth, and would answer True.
    is_exact = record.limit.messages is not None and record.limit.rejects_publish
    first = min((each.expires for each in enqueues if each.expires is not None), default=None)
    broker.expiry_marks.before(queue, record, first)
    answers = store.commit(enqueues, durable=durable, is_exact=is_exact)
    broker.expiry_marks.after(queue, record, first)
    broker.notifier(queue).notify()
    return [not isinstance(answer, QueueFullError) for answer in answers]
