"""The old broker: its queues are read on a connection of its own, and nothing is declared there."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import AccessRefused, NotFound, ResourceLocked
from celery import current_app
from kombu import Connection

from ami.adopt.errors import AdoptionRefused, OldBrokerFailed, WrongSource
from ami.adopt.old_message import OldMessage
from ami.celery.broker_kind import kind_of
from ami.celery.declaration import depth
from ami.queues import broker_errors

#: The old application's queues, since it had three.
QUEUES = ("antenna", "jobs", "ml_results")

SAME_PLACE = (
    "{variable} and CELERY_BROKER_URL name the same virtual host ({address}): the old publishers and the quorum queue "
    "antenna cannot share a virtual host; create another."
)

WRONG_QUERY = "{variable} has a query (after '?') that no connection takes; remove it."


@dataclass(frozen=True)
class OldQueue:
    """A queue's messages that are ready, and its consumers; both None where it does not exist."""

    name: str
    messages: int | None
    consumers: int | None


class OldBroker:
    """The queues at ``url``, which came from ``variable``. Use it as a context: that connects, and lets go.

    Every error of the connection is raised as `OldBrokerFailed`, with one sentence.
    """

    def __init__(self, url: str, variable: str, queues: tuple[str, ...] = QUEUES) -> None:
        self.variable, self.queues = variable, queues
        try:
            self._connection: Connection = current_app.connection_for_read(url=url)
        except (TypeError, ValueError):  # Its text may repeat a part of the URL.
            raise WrongSource(WRONG_QUERY.format(variable=variable)) from None
        self._channel: Any = None

    @property
    def address(self) -> str:
        """The URL with its password hidden."""
        return str(self._connection.as_uri())

    @property
    def place(self) -> str:
        """Host, port and virtual host: the same whoever signs in."""
        return "{}:{}/{}".format(*_place(self._connection))

    def __enter__(self) -> "OldBroker":
        with self._in_words():
            try:
                self._connection.ensure_connection(max_retries=1, interval_start=0)
            except (TypeError, ValueError):
                raise WrongSource(WRONG_QUERY.format(variable=self.variable)) from None
            self._channel = self._connection.channel()
        return self

    def __exit__(self, *_: object) -> None:
        # What is not acknowledged returns to its queue, in order.
        self._channel = None
        self._connection.collect()

    def refuse_same_place(self, new: Connection) -> None:
        """Refuse the virtual host that ``new`` is connected to, whatever name the two URLs give it.

        Raises:
            WrongSource: the split is there.
        """
        if _place(self._connection) == _place(new) or (kind_of(new).is_managed and self._sees_a_queue_of(new)):
            raise WrongSource(SAME_PLACE.format(variable=self.variable, address=self.address))

    def _sees_a_queue_of(self, new: Connection) -> bool:
        """Whether a queue that exists for a moment at the new virtual host is seen from here."""
        with new.channel() as channel:
            try:
                name = channel.queue_declare(exclusive=True, auto_delete=True).queue
            except AccessRefused:
                return False
            with self._in_words():
                probe = self._connection.channel()
                try:
                    probe.queue_declare(queue=name, passive=True)
                except NotFound:
                    return False
                except ResourceLocked:  # It is exclusive to the other connection.
                    return True
                probe.close()
            channel.queue_delete(name)
        return True

    def states(self) -> list[OldQueue]:
        """Return the queues' states, by passive declares."""
        return [self._state(name) for name in self.queues]

    def _state(self, name: str) -> OldQueue:
        with self._in_words():
            channel = self._connection.channel()
            try:
                state = OldQueue(name, *depth(channel, name))
            except NotFound:
                return OldQueue(name, None, None)
            channel.close()
        return state

    def existing(self) -> list[OldQueue]:
        """Return the queues that exist.

        Raises:
            AdoptionRefused: none does.
        """
        found = [state for state in self.states() if state.messages is not None]
        if not found:
            raise AdoptionRefused(
                f"{self.address} has none of the queues {', '.join(self.queues)}; correct {self.variable}, or name the "
                "queues with --queue."
            )
        return found

    def consumed(self) -> list[OldQueue]:
        """Return the queues that exist and have no other consumer; call it again from time to time.

        Raises:
            AdoptionRefused: none exists, or another consumer reads one.
        """
        found = self.existing()
        if read := [f"{state.name} has {state.consumers}" for state in found if state.consumers]:
            raise AdoptionRefused(
                f"Other consumers read the old queues: {', '.join(read)}, as {self.address} counts them. Stop the old "
                "workers, then run this again; nothing is lost."
            )
        return found

    def get(self, queue: str) -> OldMessage | None:
        """Return the oldest message of a queue, which stays unacknowledged; None when it is empty."""
        with self._in_words():
            raw = self._channel.basic_get(queue, no_ack=False)
        return None if raw is None else OldMessage.of(queue, raw)

    def acknowledge(self, message: OldMessage) -> None:
        """Remove a message from its queue."""
        with self._in_words():
            self._channel.basic_ack(message.tag)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        transport = self._connection.transport
        try:
            yield
        except (*broker_errors.kinds(), *transport.connection_errors, *transport.channel_errors) as error:
            with suppress(Exception):
                self._connection.collect()
            raise OldBrokerFailed(broker_errors.sentence(error, self.address, self.variable)) from error


def _place(connection: Connection) -> tuple[str, int, str]:
    port = connection.port or connection.transport.default_port
    return (connection.hostname or "").lower(), int(port or 0), connection.virtual_host or "/"
