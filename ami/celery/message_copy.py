"""Publishes a message again as it is, confirmed by the broker."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kombu import Connection

# Why a worker has buried the message: text. A transport that delays does not delay such a one.
from ami.transports.objectstore.broker.eta import REASON_HEADER as REASON_HEADER

#: The properties that a copy keeps.
PROPERTIES = (
    "correlation_id",
    "reply_to",
    "priority",
    "message_id",
    "delivery_mode",
    "timestamp",
    "type",
    "app_id",
)

#: The kind of that reason, where it is not a malformed message: one word or two.
REASON_KIND_HEADER = "antenna_reason_kind"

#: Headers about the message's past; a copy starts afresh, so that the broker's delivery count does too.
HISTORY_HEADERS = (
    REASON_HEADER,
    REASON_KIND_HEADER,
    "x-death",
    "x-first-death-queue",
    "x-first-death-exchange",
    "x-first-death-reason",
    "x-delivery-count",
)

#: RabbitMQ delivers a message to the queues that these headers name as well: a copy goes to one place.
ADDRESS_HEADERS = ("CC", "BCC")

#: How long the broker may take to confirm a copy.
CONFIRM_SECONDS = 10


@contextmanager
def confirming_channel(connection: Connection) -> Iterator[Any]:
    """Yield a channel of its own that waits until the broker has what is published."""
    options = {**(connection.transport_options or {}), "confirm_publish": True}
    with connection.clone(transport_options=options) as own:
        yield own.channel()


def copy(channel: Any, message: Any, exchange: str, routing_key: str, headers: Mapping[str, Any]) -> None:
    """Publish a message again as it is, and wait until the broker has it; ``headers`` replace those of the same name.

    ``channel`` must be one that waits for confirmations, where the broker gives any. A body that kombu has decompressed
    stays decompressed.

    Raises:
        amqp.exceptions.AMQPError: the broker refused it, or no queue takes it.
        TimeoutError: the broker did not confirm it.
    """
    headers = {**fresh(message.headers), **headers}
    if not message.errors:
        headers.pop("compression", None)
    publish(channel, message, message.body, exchange, routing_key, headers)


def fresh(headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a message's headers without those about its past, and without further addresses."""
    dropped = (*HISTORY_HEADERS, *ADDRESS_HEADERS)
    return {name: value for name, value in (headers or {}).items() if name not in dropped}


def publish(channel: Any, message: Any, body: Any, exchange: str, routing_key: str, headers: Mapping[str, Any]) -> None:
    """Publish ``body`` with the properties of ``message``, and wait until the broker has it; it raises as `copy` does.

    ``headers`` are all that it has.
    """
    properties = {name: message.properties[name] for name in PROPERTIES if message.properties.get(name) is not None}
    published = channel.prepare_message(
        body,
        properties.pop("priority", None),
        message.content_type,
        message.content_encoding,
        dict(headers),
        {"delivery_mode": 2, **properties},
    )
    channel.basic_publish(
        published, exchange=exchange, routing_key=routing_key, mandatory=True, confirm_timeout=CONFIRM_SECONDS
    )
