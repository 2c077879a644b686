"""Connections to RabbitMQ on which batches are published, each confirmed with one wait; no other code uses them."""

import os
import time
from collections.abc import Iterable
from typing import Any

from amqp.exceptions import MessageNacked
from celery import Celery
from kombu.utils.collections import eqhash

from ami.celery.message_collector import CollectedMessage
from ami.celery.producer import CONFIRM_TIMEOUT_SECONDS, Unconfirmed, drop

#: Threads that publish at the same time have a connection each; so many are kept for the next batches.
MOST_KEPT = 4

_kept: list["ConfirmingConnection"] = []


class ConfirmingConnection:
    """A connection with one channel in confirm mode, whose delivery tags count from 1.

    It is good for one batch after the other. After any error it is not used again: nothing can be known of what was
    written and confirmed.
    """

    def __init__(self, app: Celery, connection: Any) -> None:
        self.key = eqhash(connection)
        self._app, self._connection = app, connection
        self._link: Any = None
        self._tag = self._refused = 0
        self._open: dict[int, CollectedMessage] = {}

    def is_open(self) -> bool:
        """Whether neither side has closed it. Reads what the broker has sent since the last batch."""
        try:
            while True:
                self._link.drain_events(timeout=0)
        except TimeoutError:
            return True
        except Exception:
            return False

    def publish(self, messages: Iterable[CollectedMessage], deadline: float) -> None:
        """Publish messages, and wait until each is confirmed or refused. A broker in an alarm reads nothing: each write
        has the deadline, too.
        """
        if self._link is None:
            self._connect(deadline)
        bounded = self._link.transport.having_timeout
        for entity in declared(messages):
            with bounded(_left(deadline)):
                self._producer.maybe_declare(entity)
        for message in messages:
            with bounded(_left(deadline)):
                self._producer.publish(message.body, **message.options)
            self._tag += 1
            self._open[self._tag] = message
        while self._open:
            self._link.drain_events(timeout=_left(deadline))
        if self._refused:
            raise MessageNacked(f"The broker refused {self._refused} messages: their queue is full.")

    def _connect(self, deadline: float) -> None:
        connection = self._connection
        tries = max(len(connection.alt), 1)
        connection.ensure_connection(max_retries=tries - 1, interval_start=0, reraise_as_library_errors=False)
        self._link = connection.connection
        with self._link.transport.having_timeout(_left(deadline)):
            channel = self._link.channel()
            channel.confirm_select()
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        self._producer = self._app.amqp.Producer(channel, auto_declare=False)

    def drop(self) -> None:
        drop(self._connection)

    def forget(self) -> None:
        """In a forked child: close its descriptor of the parent's socket, which sends nothing."""
        self._link.sock.close()

    def _on_ack(self, tag: int, multiple: bool) -> None:
        for each in self._settled(tag, multiple):
            each.is_confirmed = True

    def _on_nack(self, tag: int, multiple: bool) -> None:
        self._refused += len(self._settled(tag, multiple))

    def _settled(self, tag: int, multiple: bool) -> list[CollectedMessage]:
        tags = [each for each in self._open if each <= tag] if multiple else [tag]
        return [self._open.pop(each) for each in tags if each in self._open]


def declared(messages: Iterable[CollectedMessage]) -> list[Any]:
    """Return each entity once: to look whether one is declared already takes longer than to make a message."""
    return list({id(entity): entity for message in messages for entity in message.declare}.values())


def publish_confirmed(app: Celery, messages: Iterable[CollectedMessage]) -> None:
    """Publish messages on a connection of this process, and note which of them the broker has.

    Raises:
        Unconfirmed: it did not confirm them all within ``CONFIRM_TIMEOUT_SECONDS``.
        amqp.exceptions.MessageNacked: it refused some: a queue is full.
        amqp.exceptions.AMQPError, OSError: the connection or the channel was lost.
    """
    deadline = time.monotonic() + CONFIRM_TIMEOUT_SECONDS
    own = _take(app)
    try:
        own.publish(messages, deadline)
    except BaseException as error:
        own.drop()
        if isinstance(error, Exception) and time.monotonic() >= deadline:
            text = "The broker did not confirm the messages in time; it may have them all the same."
            raise Unconfirmed(text) from error
        raise
    if len(_kept) < MOST_KEPT:
        _kept.append(own)
    else:
        own.drop()


def _take(app: Celery) -> ConfirmingConnection:
    """Return a connection to the broker of an application that no other thread has: a kept one, or a new one."""
    new = ConfirmingConnection(app, app.connection_for_write(transport_options={"confirm_publish": False}))
    while True:
        try:
            found = _kept.pop()
        except IndexError:
            return new
        if found.key == new.key and found.is_open():
            return found
        found.drop()


def _left(deadline: float) -> float:
    """Return the seconds until a deadline. Raises TimeoutError where it is over."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _forget_in_child() -> None:
    for each in _kept:
        each.forget()
    _kept.clear()


os.register_at_fork(after_in_child=_forget_in_child)
