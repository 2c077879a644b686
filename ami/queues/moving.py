"""Moves messages from one queue to another exchange, each confirmed there before it is acknowledged here."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from kombu import Connection, Message, Producer

#: What a message was published with, as far as a copy must keep it.
PROPERTIES = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "priority",
    "message_id",
    "delivery_mode",
)

#: Headers that RabbitMQ wrote about the message's past; a copy starts afresh, so that its delivery count does too.
BROKER_HEADERS = (
    "x-death",
    "x-first-death-queue",
    "x-first-death-exchange",
    "x-first-death-reason",
    "x-delivery-count",
)

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

    ``destination`` maps a message to (exchange, routing key); ``headers`` replace those of the same name. A crash
    between the confirmation and the acknowledgement leaves a message in both places, never in none.

    Raises:
        amqp.exceptions.AMQPError: a publish was refused; that message stays where it was.
    """
    moved = 0
    options = {**(connection.transport_options or {}), "confirm_publish": True}
    with connection.clone(transport_options=options) as confirming:
        channel = confirming.channel()
        producer = Producer(channel, auto_declare=False)
        while limit is None or moved < limit:
            raw = channel.basic_get(source, no_ack=False)
            if raw is None:
                break
            message = channel.message_to_python(raw)
            exchange, routing_key = destination(message)
            _publish(producer, message, exchange, routing_key, headers)
            channel.basic_ack(message.delivery_tag)
            moved += 1
            if progress:
                progress(moved)
    return moved


def _publish(producer: Producer, message: Any, exchange: str, routing_key: str, replaced: Mapping[str, Any]) -> None:
    kept = {name: value for name, value in (message.headers or {}).items() if name not in BROKER_HEADERS}
    properties = {name: message.properties[name] for name in PROPERTIES if message.properties.get(name) is not None}
    properties.update(content_type=message.content_type, content_encoding=message.content_encoding)
    producer.publish(
        message.body,
        exchange=exchange,
        routing_key=routing_key,
        headers={**kept, **replaced},
        retry=False,
        confirm_timeout=10,
        **properties,
    )
