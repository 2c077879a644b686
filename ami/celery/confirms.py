"""Publishes a batch on a channel of AMQP and waits once for all of its confirmations."""

import time
from typing import Any

from amqp import spec
from amqp.exceptions import ChannelError, MessageNacked

from ami import celery_internals
from ami.celery.bulk_message import BulkMessage
from ami.celery.producer import CONFIRM_TIMEOUT_SECONDS, Unconfirmed

#: The attribute of an AMQP connection that keeps its channel for batches.
_ATTRIBUTE = "antenna_confirms"


class ConfirmChannel:
    """A channel in confirm mode that is not waited for message by message. Delivery tags count from 1."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self._published, self.is_selected = 0, False
        self._open: dict[int, int] = {}
        self.acked: list[int] = []
        self.nacked = 0
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        channel.basic_publish = self._publish
        self.select()

    def select(self) -> None:
        """Put the channel into confirm mode; what was not confirmed before never is."""
        self.channel.confirm_select()
        self._published, self.is_selected = 0, True

    def begin(self) -> None:
        """Forget the last batch."""
        self._open, self.acked, self.nacked = {}, [], 0

    def expect(self, number: int) -> None:
        """Wait for the confirmation of the message just published, which has this number."""
        self._open[self._published] = number

    def wait(self, deadline: float) -> None:
        """Wait until every message is confirmed or refused.

        Raises TimeoutError at the deadline, on the monotonic clock, and amqp's errors.
        """
        while self._open:
            self.channel.connection.drain_events(timeout=_left(deadline))

    def _publish(
        self,
        message: Any,
        exchange: str,
        routing_key: str,
        mandatory: Any = False,
        immediate: Any = False,
        **_: Any,
    ) -> None:
        # Not py-amqp's own, which reads from the socket before each message: confirmations are read at the end.
        where = (0, exchange, routing_key, mandatory, immediate)
        self.channel.send_method(spec.Basic.Publish, "Bssbb", where, message)
        self._published += 1

    def _on_ack(self, tag: int, multiple: bool) -> None:
        self.acked += self._settled(tag, multiple)

    def _on_nack(self, tag: int, multiple: bool) -> None:
        self.nacked += len(self._settled(tag, multiple))

    def _settled(self, tag: int, multiple: bool) -> list[int]:
        if not multiple:
            return [self._open.pop(tag)] if tag in self._open else []
        # In the order of their tags.
        tags = []
        for each in self._open:
            if each > tag:
                break
            tags.append(each)
        return [self._open.pop(each) for each in tags]


def publish_confirmed(producer: Any, messages: dict[int, BulkMessage]) -> None:
    """Publish messages by number and remove from ``messages`` those that the broker confirms.

    Raises:
        Unconfirmed: it did not confirm the others within ``CONFIRM_TIMEOUT_SECONDS``.
        amqp.exceptions.MessageNacked: it refused some: a queue is full.
        amqp.exceptions.AMQPError, OSError: the connection or the channel was lost.
    """
    connection = producer.connection
    link = connection.connection  # To connect may take too long as well; that is tried again.
    deadline = time.monotonic() + CONFIRM_TIMEOUT_SECONDS
    confirms: ConfirmChannel | None = None
    try:
        confirms = _confirms(connection, link, deadline)
        confirms.begin()
        own = type(producer)(confirms.channel, auto_declare=False)
        # A broker in an alarm stops reading, and then nothing can be written.
        with link.transport.having_timeout(_left(deadline)):
            for number, message in list(messages.items()):
                celery_internals.publish_serialized(own, message.arguments)
                confirms.expect(number)
        confirms.wait(deadline)
    except ChannelError:
        if confirms:
            confirms.is_selected = False  # The broker closed the channel, and py-amqp has opened it again.
        raise
    except TimeoutError as error:
        connection.collect()  # To close it in order would wait for the same broker.
        raise Unconfirmed("The broker did not confirm the messages in time; it may have them all the same.") from error
    finally:
        _remove(messages, confirms)
    if confirms.nacked:
        raise MessageNacked(f"The broker refused {confirms.nacked} messages: their queue is full.")


def _remove(messages: dict[int, BulkMessage], confirms: ConfirmChannel | None) -> None:
    for number in confirms.acked if confirms else ():
        del messages[number]


def _confirms(connection: Any, link: Any, deadline: float) -> ConfirmChannel:
    """Return the channel for batches, which is opened once for each connection of py-amqp (``link``)."""
    known: ConfirmChannel | None = vars(link).get(_ATTRIBUTE)
    if known is not None and known.channel.is_open and known.is_selected:
        return known
    with link.transport.having_timeout(_left(deadline)):
        if known is not None and known.channel.is_open:
            known.select()
            return known
        confirms = ConfirmChannel(connection.channel())
    setattr(link, _ATTRIBUTE, confirms)
    return confirms


def _left(deadline: float) -> float:
    """Return the seconds until a deadline. Raises TimeoutError where it is over."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def is_confirming(connection: Any) -> bool:
    """Whether the broker of a connection speaks AMQP, and so confirms."""
    return bool(connection.transport.driver_type == "amqp")
