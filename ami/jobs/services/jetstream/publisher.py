"""Publishes many messages of a job to JetStream, and waits for their acknowledgements together."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.client import JetStreamContext
from nats.js.errors import APIError

from ami.jobs.services.jetstream import names
from ami.jobs.services.jetstream.connection import OPERATION_SECONDS, call

#: Less than the whole operation has, so that what is confirmed by then is known.
ACKNOWLEDGED_SECONDS = OPERATION_SECONDS - 2


class Acknowledgements:
    """What JetStream answers to messages that are numbered by their images, each on a subject of its own."""

    def __init__(self, expected: int) -> None:
        self.confirmed: set[int] = set()
        self.error: Exception | None = None
        self._left = expected
        self._all = asyncio.Event()

    async def receive(self, message: Msg) -> None:
        """Take one answer; its subject ends with the image."""
        self._left -= 1
        if (message.headers or {}).get("Status"):
            self.error = NoRespondersError()  # There is no such stream.
        elif "error" in (answer := json.loads(message.data)):
            self.error = _error(answer["error"])
        else:
            self.confirmed.add(int(message.subject.rpartition(".")[2]))
        if self._left <= 0:
            self._all.set()

    async def wait(self, seconds: float) -> None:
        """Wait until all have come.

        Raises:
            TimeoutError: they did not, and none is confirmed.
        """
        try:
            await asyncio.wait_for(self._all.wait(), seconds)
        except TimeoutError:
            if not self.confirmed:
                raise


def _error(given: dict[str, Any]) -> APIError:
    try:
        APIError.from_error(given)
    except APIError as error:  # It raises what others would return.
        return error
    return APIError(**given)


def publish(job_id: int, payloads: Mapping[int, Mapping[str, Any]]) -> set[int]:
    """Publish one message per image, without a wait between them; return the images that JetStream confirmed.

    A message that is published again within the stream's duplicate window is confirmed and dropped.

    Raises:
        NatsUnavailable: no answer in time; some messages may have arrived, publish all of them again.
    """
    if not payloads:
        return set()

    async def publish_all(client: Client, _: JetStreamContext) -> set[int]:
        answers = Acknowledgements(len(payloads))
        inbox = client.new_inbox()
        subscription = await client.subscribe(f"{inbox}.*", cb=answers.receive)
        try:
            subject, stream = names.subject(job_id), names.stream(job_id)
            for image_id, payload in payloads.items():
                headers = {"Nats-Msg-Id": names.message_id(job_id, image_id), "Nats-Expected-Stream": stream}
                body = json.dumps(payload).encode()
                await client.publish(subject, body, reply=f"{inbox}.{image_id}", headers=headers)
            await answers.wait(ACKNOWLEDGED_SECONDS)
        finally:
            await subscription.unsubscribe()
        if answers.error and not answers.confirmed:
            raise answers.error
        return answers.confirmed

    return call(publish_all)
