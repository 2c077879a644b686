"""Publishes letters again from their rows."""

import hashlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kombu.utils import json

from ami.celery.app import LETTER_HEADER, PUBLISH_ID_HEADER
from ami.celery.message_copy import publish
from ami.celery.staged_calls import without_own
from ami.queues.letters import bodies
from ami.queues.models import Letter

#: AMQP's, which routes to the queue that the routing key names.
DEFAULT_EXCHANGE = ""


def message_of(row: Letter) -> Any:
    """Return the letter as a message, as it was published.

    Raises:
        OSError: its body is in the storage, which failed.
    """
    return SimpleNamespace(
        body=bodies.read(row),
        headers=json.loads(row.headers),
        properties={name: value for name, value in json.loads(row.properties).items() if value is not None},
        content_type=row.content_type or None,
        content_encoding=row.content_encoding or None,
    )


def publish_again(
    channel: Any, row: Letter, destination: Callable[[Any], tuple[str, str]], *, keeps_retries: bool = False
) -> None:
    """Publish a letter, all retries before it, due now, and wait for the broker; ``destination`` maps the message to an
    exchange and a routing key.

    The publish id follows from the death, so that a letter that is published twice by a process that was killed in
    between is one death again if both copies die.

    Raises:
        amqp.exceptions.AMQPError: the broker refused it.
        OSError: its body is in the storage, which failed.
    """
    message = message_of(row)
    publish_id = hashlib.sha256(f"{row.identity} {row.died}".encode()).hexdigest()[:32]
    headers = message.headers | {PUBLISH_ID_HEADER: publish_id}
    if not keeps_retries:
        # Of a task with a policy the worker makes a call again: the run that the letter names has ended.
        headers = without_own(headers)
        headers |= {"retries": 0, "eta": None, "expires": None, LETTER_HEADER: row.pk}
    publish(channel, message, message.body, *destination(message), headers)
