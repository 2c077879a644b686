"""A probe's session with a broker: names of its own, and errors as values."""

import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from amqp.exceptions import AMQPError, ConsumerCancelled, MessageNacked
from kombu import Connection

Probe = Callable[["Session"], Any]

#: Every probe by its name.
PROBES: dict[str, Probe] = {}

#: How long a probe waits for a message that must come.
SECONDS = 10.0


def probe(function: Probe) -> Probe:
    """Register a probe under its function's name, with dashes."""
    name = function.__name__.replace("_", "-")
    assert name not in PROBES, name
    PROBES[name] = function
    return function


class Session:
    """One connection and the channel in use. A broker closes a channel at an error: the next step gets a new one."""

    def __init__(self, connection: Connection, prefix: str, seconds: float = SECONDS) -> None:
        self.connection = connection
        self.seconds = seconds
        self.prefix = prefix
        self._channels: list[Any] = []

    @property
    def channel(self) -> Any:
        if not self._channels:
            self.open_channel()
        return self._channels[-1]

    def open_channel(self) -> Any:
        self._channels.append(self.connection.channel())
        return self._channels[-1]

    def close(self) -> None:
        for channel in self._channels:
            with suppress(Exception):
                channel.close()
        self._channels.clear()

    def name(self, name: str) -> str:
        """Return a name that no other probe has."""
        return f"{self.prefix}.{name}"

    def attempt(self, step: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return "done", or what refused the step: an AMQP reply code, "nack", "cancelled"."""
        try:
            step(*arguments, **options)
        except MessageNacked:
            outcome: Any = "nack"
        except ConsumerCancelled:
            outcome = "cancelled"
        except AMQPError as error:
            outcome = error.reply_code or error.code
        except struct.error:
            outcome = "not AMQP"
        else:
            return "done"
        if self._channels:
            with suppress(Exception):
                self._channels.pop().close()
        return outcome

    # Steps.

    def queue(self, name: str = "q", *, channel: Any = None, **options: Any) -> str:
        """Declare a queue, durable unless told otherwise; return its whole name."""
        whole = self.name(name)
        given = {"durable": True, "auto_delete": False, **options}
        (channel or self.channel).queue_declare(queue=whole, **given)
        return whole

    def exchange(self, kind: str, name: str = "x", **options: Any) -> str:
        whole = self.name(name)
        self.channel.exchange_declare(exchange=whole, type=kind, **{"durable": True, "auto_delete": False, **options})
        return whole

    def publish(self, body: Any, key: str, exchange: str = "", mandatory: bool = False, **options: Any) -> None:
        if isinstance(body, str):
            options = {"content_type": "text/plain", "content_encoding": "utf-8", **options}
        message = self.channel.prepare_message(body, **options)
        self.channel.basic_publish(message, exchange=exchange, routing_key=key, mandatory=mandatory)

    def fill(self, queue: str, *bodies: str, **options: Any) -> None:
        for body in bodies:
            self.publish(body, queue, **options)

    def get(self, queue: str, *, no_ack: bool = True, waits: bool = True) -> Any:
        """Return the next message, None when none came in time (at once where it does not wait)."""
        deadline = time.monotonic() + (self.seconds if waits else 0)
        while True:
            message = self.channel.basic_get(queue, no_ack=no_ack)
            if message is not None:
                return self.channel.message_to_python(message)
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)

    def bodies(self, queue: str, count: int) -> list[str]:
        """Return the bodies of ``count`` messages that must come, then of one more, if there is one."""
        found = [text(self.get(queue)) for _ in range(count)]
        more = self.get(queue, waits=False)
        return found if more is None else [*found, text(more)]

    def depth(self, queue: str, expected: int | None = None) -> int:
        """Return how many messages wait; a quorum queue counts late: wait for an expected number."""
        deadline = time.monotonic() + self.seconds
        while True:
            count: int = self.channel.queue_declare(queue=queue, passive=True).message_count
            if expected in (None, count) or time.monotonic() > deadline:
                return count
            time.sleep(0.01)

    def consume(self, queue: str, take: Callable[[Any], Any], *, channel: Any = None, tag: str = "", **options: Any):
        channel = channel or self.channel

        def callback(raw: Any) -> None:
            take(channel.message_to_python(raw))

        return channel.basic_consume(queue=queue, consumer_tag=tag or self.name("c"), callback=callback, **options)

    def wait(self, is_done: Callable[[], Any], seconds: float | None = None) -> bool:
        """Ask until it is done; return False where the time passed first."""
        deadline = time.monotonic() + (self.seconds if seconds is None else seconds)
        while not is_done():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def drain(self, is_done: Callable[[], Any], seconds: float | None = None) -> bool:
        """Deliver until it is done; return False where the time passed first."""
        deadline = time.monotonic() + (self.seconds if seconds is None else seconds)
        while not is_done():
            if time.monotonic() > deadline:
                return False
            with suppress(TimeoutError):
                self.connection.drain_events(timeout=0.05)
        return True


def text(message: Any) -> str:
    """Return a message's body as text."""
    if message is None:
        return "none"
    return message.body if isinstance(message.body, str) else bytes(message.body).decode()
