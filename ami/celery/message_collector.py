"""A producer that keeps what it is given, so that `apply_async` makes messages that are published together later."""

from dataclasses import dataclass
from typing import Any

from kombu import Producer
from kombu.serialization import dumps

from ami.transports.objectstore.broker.publish_attempts import OwnHeaders

#: What is said of one publish alone and not of a batch.
_OF_ONE = ("retry", "retry_policy", "timeout", "confirm_timeout")


@dataclass(slots=True)
class CollectedMessage:
    """A message that is not published yet: its serialized body, what ``Producer.publish`` takes with it, and what must
    be declared before.
    """

    body: Any
    options: dict[str, Any]
    declare: tuple[Any, ...]
    is_confirmed: bool = False


class MessageCollector(Producer):
    """Serializes and keeps each message; its connection is not opened."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.messages: list[CollectedMessage] = []
        self.size_bytes = 0

    def publish(
        self,
        body: Any,
        routing_key: str | None = None,
        *,
        serializer: str | None = None,
        headers: Any = None,
        declare: Any = None,
        **options: Any,
    ) -> None:
        """Keep a message; raises ``kombu.exceptions.EncodeError`` for arguments that cannot be serialized."""
        if not options.get("content_type"):
            options["content_type"], options["content_encoding"], body = dumps(body, serializer=serializer)
        kept = {name: value for name, value in options.items() if name not in _OF_ONE}
        # The same headers in every try: a folder knows a message by them and stores it once.
        kept |= {"routing_key": routing_key, "headers": OwnHeaders(headers or {})}
        self.messages.append(CollectedMessage(body, kept, tuple(declare or ())))
        self.size_bytes += len(body)

    def take(self) -> list[CollectedMessage]:
        """Return and forget what was kept."""
        taken, self.messages, self.size_bytes = self.messages, [], 0
        return taken
