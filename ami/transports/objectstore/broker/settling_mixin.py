"""The part of a channel that settles messages: acknowledges, requeues and buries them."""

import threading
from datetime import UTC, datetime
from time import time
from typing import Any

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.dead_letters import move_dead_letters
from ami.transports.objectstore.broker.expiry import mark_requeued
from ami.transports.objectstore.broker.stored_message import StoredMessage
from ami.transports.objectstore.queue.commands import Ack, Bury, Command, Return
from ami.transports.objectstore.queue.state import REJECTED
from ami.transports.objectstore.storage.errors import JobNotFoundError


class SettlingMixin:
    """Mixed into the channel; ``broker`` and ``owner`` are the connection's."""

    connection: Any
    owner: str
    qos: Any
    #: What the next claim of each queue settles.
    _settled: dict[str, list[Command]]

    @property
    def broker(self) -> BrokerStorage:
        raise NotImplementedError

    def settle(self, queue: str, command: Command) -> None:
        """Acknowledge, requeue or bury: on the consuming thread together with the next claim, elsewhere at once."""
        if threading.get_ident() == self.connection.consuming_thread:
            self._settled.setdefault(queue, []).append(command)
            self.connection.mark_ready(queue)
            return
        self._commit_settled(queue, [command])
        self.connection.wake()

    def flush(self) -> None:
        while self._settled:
            self._commit_settled(*self._settled.popitem())

    def _commit_settled(self, queue: str, commands: list[Command]) -> None:
        if not self.broker.declarations.has_queue(queue):
            return  # Its messages ended with it.
        answers = self.broker.store(queue).commit(commands, durable=False)
        for answer in answers:
            # JobNotFoundError: this consumer was taken for dead, and the message was redelivered, flagged.
            if isinstance(answer, Exception) and not isinstance(answer, JobNotFoundError):
                raise answer
        self._after_settling(queue, commands)

    def _after_settling(self, queue: str, commands: list[Command]) -> None:
        if any(isinstance(command, Return) for command in commands):
            mark_requeued(self.broker, queue)
            self.broker.notifier(queue).notify()
        if self.broker.store(queue).holds_buried:
            move_dead_letters(self.broker, queue)

    def reject(self, message: StoredMessage, requeue: bool) -> None:
        """Requeue a message, counting toward the delivery limit, or bury it."""
        if message.place is not None:
            queue, name = message.place
            self.settle(queue, Return(name, owner=self.owner) if requeue else Bury(name, REJECTED, self.owner))

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        """Acknowledge a message, or all up to it. Raises amqp's PreconditionFailed for an unknown tag."""
        self.qos.ack(delivery_tag, multiple)

    def acknowledge(self, message: StoredMessage) -> None:
        if message.place is not None:
            queue, name = message.place
            self.settle(queue, Ack(name))

    def requeue_unacked(self, messages: list[StoredMessage]) -> None:
        """Requeue delivered messages that were not settled; it counts toward the delivery limit, as on RabbitMQ.

        A worker that a message crashes may still close its connection in order: if that did not count, the message
        would crash one worker after the other. A message that was held until its ETA is not counted.
        """
        by_queue: dict[str, list[Command]] = {}
        for message in messages:
            if message.place is not None:
                queue, name = message.place
                counted = not _is_early(message)
                by_queue.setdefault(queue, []).append(Return(name, counted=counted, owner=self.owner))
        for queue, commands in by_queue.items():
            self._commit_settled(queue, commands)


def _is_early(message: StoredMessage) -> bool:
    """Whether its task's ETA, as Celery writes it, is still to come."""
    eta = message.headers.get("eta")
    try:
        moment = datetime.fromisoformat(eta) if eta else None
        return moment is not None and (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() > time()
    except (TypeError, ValueError, OverflowError):
        return False
