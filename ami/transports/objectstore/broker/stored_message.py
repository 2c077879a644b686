"""A message of a store, as a consumer gets it."""

from typing import Any

from kombu.transport import virtual

from ami.transports.objectstore.broker.envelope import Envelope


class StoredMessage(virtual.Message):
    """A message with its place: the queue, and the id of its entry there."""

    def __init__(self, payload: Envelope, channel: Any = None, place: tuple[str, str] | None = None, **kwargs: Any):
        super().__init__(payload, channel=channel, **kwargs)
        self.place = place
