"""Moves messages from one queue to another exchange, each confirmed there before it is acknowledged here."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kombu import Connection, Message

from ami.celery.message_copy import confirming_channel, copy

Destination = tuple[str, str]


def move(
    connection: Connection,
    source: str,
    destination: Callable[[Message], Destination],
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
    headers: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Move messages of ``source``, oldest first; return how many.

    ``destination`` maps a message to (exchange, routing key); ``headers`` replace those of the same name; a value may
    be a function that makes one for each message. A crash between the confirmation and the acknowledgement leaves a
    message in both places, never in none.

    Raises:
        amqp.exceptions.AMQPError: a publish was refused; that message stays where it was.
    """
    moved = 0
    with confirming_channel(connection) as channel:
        while (limit is None or moved < limit) and (raw := channel.basic_get(source, no_ack=False)) is not None:
            message = channel.message_to_python(raw)
            given = {name: value() if callable(value) else value for name, value in headers.items()}
            copy(channel, message, *destination(message), given)
            channel.basic_ack(message.delivery_tag)
            moved += 1
            if progress:
                progress(moved)
    return moved
