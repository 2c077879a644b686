"""Reads JetStream's advisories about messages whose deliveries are used up."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from nats.aio.client import Client
from nats.js.client import JetStreamContext

from ami.jobs.services.jetstream import names
from ami.jobs.services.jetstream.connection import call
from ami.jobs.services.jetstream.messages import image_of_message, pull
from ami.jobs.services.jetstream.together import ask_for_each

BATCH = 100
#: A consumer that does not exist never answers. What a slower server sends is delivered again to the next audit.
ANSWER_SECONDS = 1.0


@dataclass
class Exhausted:
    """A job's images whose deliveries are used up, with their number; ``replies`` acknowledge the advisories."""

    deliveries: dict[int, int] = field(default_factory=dict)
    replies: list[str] = field(default_factory=list)


def exhausted_images(job_ids: Iterable[int]) -> dict[int, Exhausted]:
    """Return the exhausted images of each job; all jobs are asked at once, and none is waited for without need.

    The caller settles the images before it acknowledges the advisories, so that a crash in between loses none.

    Raises:
        NatsUnavailable: no answer in time.
    """
    return call(lambda client, js: ask_for_each(job_ids, lambda job_id: _of_job(client, js, job_id)))


async def _of_job(client: Client, js: JetStreamContext, job_id: int) -> Exhausted:
    found = Exhausted()
    consumer = names.advisories(job_id)
    for message in await pull(client, names.ADVISORIES_STREAM, consumer, BATCH, ANSWER_SECONDS) or ():
        advisory = json.loads(message.data)
        image_id = await image_of_message(js, job_id, advisory["stream_seq"])
        if image_id is not None:
            found.deliveries[image_id] = advisory["deliveries"]
        found.replies.append(message.reply)
    return found
