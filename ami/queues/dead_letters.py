"""What was given up: messages buried in dead-letter queues, and messages that no binding matched."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from kombu import Connection, Message

from ami.celery import storable
from ami.celery.amqp_properties import UNREADABLE
from ami.celery.app import PUBLISH_ID_HEADER
from ami.celery.declaration import depth
from ami.celery.message_copy import REASON_HEADER, REASON_KIND_HEADER
from ami.queues.shovel import move
from ami.topology import broker
from ami.topology.router import ORIGIN_HEADER
from ami.topology.topology import Topology


@dataclass(frozen=True)
class DeadLetter:
    """One buried message.

    ``reason`` is the broker's (rejected, delivery_limit, expired, maxlen), ``unrouted``, or ``malformed`` for what a
    worker buried before its task started; ``detail`` says the same in a sentence. ``letter`` is the
    number of its row, None for a message that is not collected yet.
    """

    queue: str
    task_id: str
    task: str
    reason: str
    retries: int
    arguments: str
    detail: str = ""
    letter: int | None = None


#: The reason of what a worker buried itself.
MALFORMED = "malformed"

DETAILS = {
    "rejected": "the task failed, its retries used up",
    "delivery_limit": "its worker died or returned it at every delivery; the task did not fail",
    "expired": "it waited longer than its queue or its publisher allows",
    "maxlen": "its queue was full",
    "unrouted": "no binding matched its routing key",
}

MAX_CELL = 200


def burial_queues(topology: Topology) -> tuple[str, ...]:
    """Return every queue that keeps what was given up."""
    return (*(row.dead_letter_queue for row in topology.workloads), broker.UNROUTED)


def counts(topology: Topology, connection: Connection) -> dict[str, int]:
    """Return how many messages each burial queue holds.

    Raises:
        amqp.exceptions.NotFound: the topology was never declared.
    """
    with connection.channel() as channel:
        return {queue: depth(channel, queue)[0] for queue in burial_queues(topology)}


def peek(connection: Connection, queue: str, limit: int = 20) -> list[DeadLetter]:
    """Return the oldest letters of ``queue``; they stay there, in order."""
    with connection.clone() as own:
        channel = own.channel()
        # Closing the channel returns what was read, in order.
        return list(_read(channel, queue, limit))


def _read(channel: Any, queue: str, limit: int) -> Iterator[DeadLetter]:
    for _ in range(limit):
        raw = channel.basic_get(queue, no_ack=False)
        if raw is None:
            return
        yield letter(queue, channel.message_to_python(raw))


def letter(queue: str, message: Message) -> DeadLetter:
    headers = message.headers or {}
    reason, detail = _why(message, headers)
    shown = [cell(headers[name]) for name in ("argsrepr", "kwargsrepr") if headers.get(name)]
    return DeadLetter(
        queue=queue,
        task_id=cell(headers.get("id", "?")),
        task=cell(headers.get("task", "?")),
        reason=reason,
        retries=storable.count(headers.get("retries")),
        arguments=" ".join(shown)[:MAX_CELL],
        detail=detail,
    )


def _why(message: Message, headers: dict[str, Any]) -> tuple[str, str]:
    if unreadable := (getattr(message, "properties", None) or {}).get(UNREADABLE):
        return MALFORMED, cell(f"its properties cannot be read: {unreadable}")
    if REASON_HEADER in headers:
        return cell(headers.get(REASON_KIND_HEADER) or MALFORMED), cell(headers[REASON_HEADER], 300)
    deaths = headers.get("x-death")
    newest = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
    reason = cell(newest.get("reason", "unrouted"))
    return reason, DETAILS.get(reason, "")


def cell(value: Any, most: int = MAX_CELL) -> str:
    """Return a value of a message as one bounded line of text."""
    try:
        text = str(value)[:most]
    except (ValueError, RecursionError):  # A whole number of thousands of digits; lists in lists.
        text = type(value).__name__
    return "".join(character if character.isprintable() else "?" for character in text)


def replay(
    topology: Topology,
    connection: Connection,
    queue: str,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Send the messages of ``queue`` to where their tasks belong today, all retries before them; return how many.

    Only those that are there at the start: a task that fails again at once is not sent again and again.
    """
    limit = planned(connection, queue, limit)
    # With a publish id of its own each: one that dies again is another death.
    fresh = {"retries": 0, PUBLISH_ID_HEADER: lambda: uuid4().hex}
    return move(connection, queue, lambda message: destination(topology, message), limit, progress, headers=fresh)


def destination(topology: Topology, message: Any) -> tuple[str, str]:
    """Return the exchange and routing key of where a letter's task belongs today."""
    headers = message.headers or {}
    origin = headers.get(ORIGIN_HEADER)
    place = topology.place(str(headers.get("task", "")), origin if isinstance(origin, str) else None)
    return broker.EXCHANGE_NAME, place.queue


def planned(connection: Connection, queue: str, limit: int | None = None) -> int:
    """Return how many letters `replay` or `discard` would reach now."""
    with connection.channel() as channel:
        messages = depth(channel, queue)[0]
    return messages if limit is None else min(limit, messages)


def discard(connection: Connection, queue: str, limit: int | None = None) -> int:
    """Delete the letters of ``queue`` for good, the oldest ``limit`` or all of them; return how many."""
    with connection.channel() as channel:
        if limit is None:
            return int(channel.queue_purge(queue) or 0)
        for count in range(limit):
            if channel.basic_get(queue, no_ack=True) is None:
                return count
    return limit
