"""Publishes adopted messages into the split, each confirmed by the broker."""

import math
import time
from typing import Any

from celery.utils.saferepr import saferepr
from kombu import Connection
from kombu.compression import compress
from kombu.transport.native_delayed_delivery import (
    MAX_LEVEL,
    MAX_NUMBER_OF_BITS_TO_USE,
    calculate_routing_key,
    level_name,
)
from kombu.utils.json import dumps

from ami.adopt.old_message import OldMessage, one_line
from ami.adopt.plan import Plan
from ami.celery.app import PUBLISHED_HEADER
from ami.celery.broker_kind import kind_of
from ami.celery.message_copy import REASON_HEADER, REASON_KIND_HEADER, fresh, publish
from ami.celery.message_guard import MAX_REASON
from ami.celery.task_message import seconds_ahead
from ami.topology import broker
from ami.topology.table import FALLBACK

#: The kind of the dead letters that an adoption makes.
NOT_ADOPTED = "not adopted"

#: As long as Celery's own representations of arguments.
MAX_REPRESENTATION = 1024


class Split:
    """One confirming channel to the new broker."""

    def __init__(self, connection: Connection) -> None:
        options = {**(connection.transport_options or {}), "confirm_publish": True}
        self._connection = connection.clone(transport_options=options)
        self._channel = self._connection.channel()

    def close(self) -> None:
        self._connection.collect()

    def run(self, message: OldMessage, plan: Plan) -> None:
        """Publish a message to the queue of its plan; one with an ETA is delayed by the broker where it can.

        Raises:
            amqp.exceptions.AMQPError: the broker refused it.
            TimeoutError: the broker did not confirm it.
        """
        ahead = max(0.0, seconds_ahead(message))
        exchange, key = broker.EXCHANGE_NAME, plan.queue
        # Elsewhere the broker reads the ETA, or a worker holds it until then.
        if ahead >= 1 and kind_of(self._connection).delay_exchanges:
            seconds = min(math.ceil(ahead), 2**MAX_NUMBER_OF_BITS_TO_USE - 1)
            exchange, key = level_name(MAX_LEVEL), calculate_routing_key(seconds, plan.queue)
        body, headers = _content(message, plan)
        headers.setdefault(PUBLISHED_HEADER, time.time() + ahead)
        publish(self._channel, message, body, exchange, key, headers)

    def bury(self, message: OldMessage, plan: Plan) -> None:
        """Publish a message to the dead letters of its plan, with the reason; it raises as `run` does."""
        body, headers = _content(message, plan)
        headers |= {REASON_HEADER: one_line(plan.reason, MAX_REASON), REASON_KIND_HEADER: NOT_ADOPTED}
        key = plan.home.queue if plan.home else FALLBACK
        publish(self._channel, message, body, broker.DEAD_LETTER_EXCHANGE_NAME, key, headers)


def _content(message: OldMessage, plan: Plan) -> tuple[Any, dict[str, Any]]:
    """Return the body and the headers of a copy; what came compressed is compressed again if it was changed."""
    headers = {} if message.unreadable else fresh(message.headers)
    if plan.call is None:
        return message.body, headers
    arguments = plan.call.arguments
    body: Any = dumps([[], arguments, plan.call.embed])
    if headers.pop("compression", None):
        body, headers["compression"] = compress(body, "gzip")
    headers |= {"task": plan.runs_as, "argsrepr": "()", "kwargsrepr": saferepr(arguments, MAX_REPRESENTATION)}
    return body, headers
