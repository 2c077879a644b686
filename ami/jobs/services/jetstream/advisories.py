"""Reads JetStream's advisories about messages whose deliveries are used up."""

import json

from nats.aio.client import Client
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

from ami.jobs.services.jetstream import names
from ami.jobs.services.jetstream.connection import call
from ami.jobs.services.jetstream.messages import image_of_message

BATCH = 100


def exhausted_images(job_id: int) -> tuple[dict[int, int], list[str]]:
    """Return {image: number of deliveries} of exhausted images, and the reply subjects of the advisories.

    The caller settles the images before it acknowledges the advisories, so that a crash in between loses none.

    Raises:
        NatsUnavailable: no answer in time.
    """

    async def read(_: Client, js: JetStreamContext) -> tuple[dict[int, int], list[str]]:
        subscription = await js.pull_subscribe_bind(durable=names.advisories(job_id), stream=names.ADVISORIES_STREAM)
        deliveries: dict[int, int] = {}
        replies: list[str] = []
        try:
            for message in await subscription.fetch(BATCH, timeout=0.5):
                advisory = json.loads(message.data)
                image_id = await image_of_message(js, job_id, advisory["stream_seq"])
                if image_id is not None:
                    deliveries[image_id] = advisory["deliveries"]
                replies.append(message.reply)
        except TimeoutError:
            pass
        finally:
            await subscription.unsubscribe()
        return deliveries, replies

    try:
        return call(read)
    except NotFoundError:
        return {}, []
