"""Creates, inspects and deletes a job's stream and consumers on JetStream."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamConfig
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

from ami.jobs.services.jetstream import names
from ami.jobs.services.jetstream.connection import call
from ami.jobs.services.jetstream.names import STREAM_MAX_AGE_SECONDS
from ami.jobs.services.jetstream.together import ask_for_each

ADVISORIES_MAX_AGE_SECONDS = 3600
DUPLICATE_WINDOW_SECONDS = 3600


@dataclass(frozen=True)
class StreamState:
    """One stream of a job on the server."""

    job_id: int
    created_at: datetime
    messages: int


def create_stream(job_id: int) -> None:
    """Create the job's stream and consumers if they do not exist.

    Raises:
        NatsUnavailable: no answer in time.
    """
    call(lambda _, js: _create(js, job_id))


def recreate_stream(job_id: int) -> None:
    """Delete streams and consumers with the job's names (leftovers of another database) and create new ones."""

    async def recreate(_: Client, js: JetStreamContext) -> None:
        await _delete(js, job_id)
        await _create(js, job_id)

    call(recreate)


def delete_job(job_id: int) -> bool:
    """Delete the job's stream and consumers; return whether there was a stream."""
    return call(lambda _, js: _delete(js, job_id))


def consumer_state(job_id: int) -> dict[str, Any] | None:
    """Return the consumer's counters, or None if the job has no consumer."""
    return consumer_states([job_id])[job_id]


def consumer_states(job_ids: Iterable[int]) -> dict[int, dict[str, Any] | None]:
    """Return the counters of each job's consumer, or None for a job without one; all jobs are asked at once."""
    return call(lambda _, js: ask_for_each(job_ids, lambda job_id: _consumer_state(js, job_id)))


async def _consumer_state(js: JetStreamContext, job_id: int) -> dict[str, Any] | None:
    try:
        info = await js.consumer_info(names.stream(job_id), names.consumer(job_id))
    except NotFoundError:
        return None
    return {
        "num_pending": info.num_pending,
        "num_ack_pending": info.num_ack_pending,
        "num_redelivered": info.num_redelivered,
    }


def job_streams() -> list[StreamState]:
    """Return all streams on the server with the name of a job."""

    async def read(_: Client, js: JetStreamContext) -> list[StreamState]:
        found: list[StreamState] = []
        offset = 0
        while True:
            page = await js._api_request("$JS.API.STREAM.LIST", f'{{"offset": {offset}}}'.encode(), timeout=10)
            streams = page.get("streams") or []
            found += filter(None, map(_stream_state, streams))
            offset += len(streams)
            if not streams or offset >= page.get("total", 0):
                return found

    return call(read)


def _stream_state(raw: dict[str, Any]) -> StreamState | None:
    job_id = names.job_id_of(raw["config"]["name"])
    if job_id is None:
        return None
    created = datetime.fromisoformat(raw["created"][:19]).replace(tzinfo=UTC)
    return StreamState(job_id, created, raw["state"]["messages"])


async def _create(js: JetStreamContext, job_id: int) -> None:
    await js.add_stream(
        StreamConfig(
            name=names.stream(job_id),
            subjects=[names.subject(job_id)],
            max_age=STREAM_MAX_AGE_SECONDS,
            duplicate_window=DUPLICATE_WINDOW_SECONDS,
        )
    )
    await js.add_consumer(
        names.stream(job_id),
        ConsumerConfig(
            durable_name=names.consumer(job_id),
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.ALL,
            ack_wait=settings.NATS_TASK_TTR,
            max_deliver=settings.NATS_MAX_DELIVER,
            max_ack_pending=settings.NATS_MAX_ACK_PENDING,
        ),
    )
    await _create_advisory_consumer(js, job_id)


async def _create_advisory_consumer(js: JetStreamContext, job_id: int) -> None:
    await js.add_stream(
        StreamConfig(
            name=names.ADVISORIES_STREAM,
            subjects=[names.ADVISORIES_SUBJECT],
            max_age=ADVISORIES_MAX_AGE_SECONDS,
        )
    )
    await js.add_consumer(
        names.ADVISORIES_STREAM,
        ConsumerConfig(
            durable_name=names.advisories(job_id),
            ack_policy=AckPolicy.EXPLICIT,
            filter_subject=names.exhausted_subject(job_id),
        ),
    )


async def _delete(js: JetStreamContext, job_id: int) -> bool:
    with contextlib.suppress(NotFoundError):
        await js.delete_consumer(names.ADVISORIES_STREAM, names.advisories(job_id))
    try:
        await js.delete_stream(names.stream(job_id))
    except NotFoundError:
        return False
    return True
