"""Fetches, extends and acknowledges the messages of a job on JetStream."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

from ami.jobs.services.jetstream import names
from ami.jobs.services.jetstream.connection import call

logger = logging.getLogger(__name__)

FETCH_SECONDS = 0.5
SLOW_SECONDS = 2.0


@dataclass(frozen=True)
class Delivery:
    """One fetched message: its image, its reply subject for acknowledging, and its number of deliveries."""

    image_id: int
    reply_subject: str
    deliveries: int


def fetch(job_id: int, batch: int, seconds: float = FETCH_SECONDS) -> list[Delivery]:
    """Return up to ``batch`` available messages; an empty list if there are none or no consumer yet.

    The request sets ``no_wait``: a request left pending on the server would consume a later message, and with it one
    of that message's deliveries.

    Raises:
        NatsUnavailable: no connection, or JetStream did not answer in time.
    """

    async def fetch_batch(client: Client, js: JetStreamContext) -> list[Delivery]:
        stream, consumer = names.stream(job_id), names.consumer(job_id)
        async with _asked(client, stream, consumer, batch) as subscription:
            messages = await _collect(subscription, batch, seconds)
            if messages is None:
                # A missing consumer never answers; a slow server answers a little later.
                await js.consumer_info(stream, consumer)
                messages = await _collect(subscription, batch, SLOW_SECONDS)
            return list(filter(None, map(_delivery, messages or ())))

    try:
        return call(fetch_batch)
    except NotFoundError:
        return []


async def pull(client: Client, stream: str, consumer: str, batch: int, seconds: float) -> list[Msg] | None:
    """Return up to ``batch`` available messages of a consumer without waiting for one; None without an answer.

    A consumer that does not exist has no messages.
    """
    async with _asked(client, stream, consumer, batch) as subscription:
        return await _collect(subscription, batch, seconds)


@asynccontextmanager
async def _asked(client: Client, stream: str, consumer: str, batch: int) -> AsyncIterator[Any]:
    """Request messages that are available now and yield the subscription to which they come."""
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    try:
        request = json.dumps({"batch": batch, "no_wait": True}).encode()
        await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", request, reply=inbox)
        yield subscription
    finally:
        await subscription.unsubscribe()


async def _collect(subscription: Any, batch: int, seconds: float) -> list[Msg] | None:
    """Read messages until the batch is full, the server reports the end, or time is up.

    None means that the server did not answer at all.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    messages: list[Msg] = []
    answered = False
    while len(messages) < batch and (left := deadline - loop.time()) > 0:
        try:
            message = await subscription.next_msg(timeout=left)
        except TimeoutError:
            break
        answered = True
        if (message.headers or {}).get("Status"):
            break
        messages.append(message)
    return messages if answered else None


def _delivery(message: Msg) -> Delivery | None:
    try:
        image_id = int(json.loads(message.data)["image_id"])
    except (ArithmeticError, ValueError, KeyError, TypeError, RecursionError):
        logger.warning("Invalid message on %s skipped; it expires unacknowledged", message.subject)
        return None
    return Delivery(image_id, message.reply, message.metadata.num_delivered)


def acknowledge(reply_subjects: Iterable[str], *, of_job: int | None = None) -> None:
    """Acknowledge deliveries and wait until the server has processed them.

    Pass ``of_job`` for subjects that a client sent: subjects of other jobs' streams are then ignored.

    Raises:
        NatsUnavailable: no connection; JetStream redelivers after its ack_wait.
    """
    subjects = [subject for subject in reply_subjects if subject.startswith("$JS.ACK.")]
    if of_job is not None:
        subjects = [subject for subject in subjects if _sequence(of_job, subject) is not None]
    _send(subjects, b"+ACK")


def in_progress(job_id: int, reply_subjects: Iterable[str]) -> None:
    """Restart the ack_wait of these deliveries of the job, and wait until the server has processed that.

    It has no effect on a delivery that is acknowledged, or whose ack_wait is over.
    Source: https://docs.nats.io/using-nats/developer/develop_jetstream/consumers (AckProgress, ``+WPI``).

    Raises:
        NatsUnavailable: no connection; JetStream redelivers after the present ack_wait.
    """
    _send([subject for subject in reply_subjects if _sequence(job_id, subject) is not None], b"+WPI")


def _send(subjects: Sequence[str], body: bytes) -> None:
    """Publish ``body`` to all subjects with one flush; without subjects do nothing."""
    if not subjects:
        return

    async def send(client: Client, _: JetStreamContext) -> None:
        for subject in subjects:
            await client.publish(subject, body)
        await client.flush(timeout=5)

    call(send)


def _sequence(job_id: int, reply_subject: str) -> int | None:
    """Return the stream sequence in a reply subject of this job; None if it is invalid or another job's."""
    # $JS.ACK.<stream>.<consumer>.<delivered>.<stream sequence>...; with a domain and an account two tokens more.
    tokens = reply_subject.split(".")
    offset = 4 if len(tokens) >= 11 else 2
    if not reply_subject.startswith("$JS.ACK.") or len(tokens) < 9 or not tokens[offset + 3].isdecimal():
        return None
    return int(tokens[offset + 3]) if tokens[offset] == names.stream(job_id) else None


def message_of(job_id: int, reply_subject: str) -> tuple[int, str] | None:
    """Return the stream sequence and the time of the message of a delivery; None where `_sequence` is.

    Both are the same in each delivery of a message. A stream that is made again has the same sequences at other times.
    """
    sequence = _sequence(job_id, reply_subject)
    tokens = reply_subject.split(".")
    return None if sequence is None else (sequence, tokens[9 if len(tokens) >= 11 else 7])


def image_of_reply(job_id: int, reply_subject: str) -> int | None:
    """Return the image of the delivery with this reply subject; None if the message no longer exists.

    Raises:
        NatsUnavailable: no answer in time.
    """
    sequence = _sequence(job_id, reply_subject)
    return None if sequence is None else call(lambda _, js: image_of_message(js, job_id, sequence))


async def image_of_message(js: JetStreamContext, job_id: int, sequence: int) -> int | None:
    """Return the image of the stored message with this sequence number; None if it no longer exists."""
    try:
        message = await js.get_msg(names.stream(job_id), sequence)
        return int(json.loads(message.data or b"")["image_id"])
    except (NotFoundError, ArithmeticError, ValueError, KeyError, TypeError, RecursionError):
        return None
