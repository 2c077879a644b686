"""Buries a message that is not a proper task, with a reason, before it can end its worker."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from celery.signals import task_rejected
from celery.utils.log import get_logger
from celery.worker import state
from celery.worker.consumer import Consumer as CeleryConsumer
from kombu import Connection
from kombu.transport.native_delayed_delivery import (
    MAX_LEVEL,
    MAX_NUMBER_OF_BITS_TO_USE,
    calculate_routing_key,
    level_name,
)

from ami import celery_internals
from ami.celery import staged_calls
from ami.celery.amqp_properties import UNREADABLE
from ami.celery.broker_kind import BrokerKind, kind_of
from ami.celery.dead_letter_publisher import DeadLetter, DeadLetterPublisher
from ami.celery.declaration import declare
from ami.celery.message_copy import REASON_HEADER
from ami.celery.task_message import MAX_HEADERS_BYTES, MAX_ID, check, seconds_ahead
from ami.governor.slot_consumer import SlotConsumer
from ami.topology.broker import EXCHANGE_NAME
from ami.transports.objectstore.broker.eta import eta_of

logger = get_logger(__name__)

BURIED = "Message buried before its task started: %s"
DROPPED = "Message rejected before its task started; its queue keeps no dead letters: %s"

#: A task that is due sooner waits in the worker, as Celery does; a clock may be a little behind.
POSTPONED_SECONDS = 60.0

MAX_REASON = 300


class GuardedConsumer(SlotConsumer):
    """A task consumer whose messages raise nothing but what the broker's connection raises.

    Any other error, in kombu, in the governor or in Celery, goes to ``on_decode_error``. It binds no queue of the
    topology: after a rollback another queue has its keys, and each task would be delivered to both.
    """

    on_decode_error: Callable[[Any, BaseException], Any] | None = None

    def declare(self) -> None:
        """Declare the queues that are not the topology's; ``ami.celery.declaration`` declares those with their keys."""
        for queue in self._queues.values():
            self._declare_foreign(queue)

    def add_queue(self, queue: Any) -> Any:
        """Add a queue to consume from; see ``kombu.Consumer.add_queue``."""
        added = queue(self.channel)
        self._declare_foreign(added)
        self._queues[added.name] = added
        return added

    def _declare_foreign(self, queue: Any) -> None:
        if not kind_of(self.connection).routes or queue.exchange.name != EXCHANGE_NAME:
            queue.declare()

    def _receive_callback(self, message: Any) -> Any:
        try:
            return super()._receive_callback(message)
        except Exception as error:
            if self.on_decode_error is None or _is_not_the_messages(error, self.connection):
                raise
            return self.on_decode_error(message, error)

    def give_up(self, message: Any, error: Exception) -> None:
        """Bury a message that the governor refuses."""
        if self.on_decode_error is None:
            super().give_up(message, error)
        else:
            self.on_decode_error(message, error)


class GuardedWorker(CeleryConsumer):
    """Celery's consumer of a worker; set as ``worker_consumer``.

    Every way that a message can be wrong before its task starts ends in :meth:`bury`: it cannot be decoded or
    decompressed, is not a task message, names an unknown task, has an invalid header, or makes Celery raise.
    """

    on_task_request: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dead_letters = DeadLetterPublisher(self._connect_confirming, self.call_soon, self._declare)
        self._guard_start()

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        """Return what is called with each message, and raises nothing about the message."""
        self.dead_letters.forget()
        handle = super().create_task_handler(*args, **kwargs)

        def check_and_handle(message: Any) -> Any:
            try:
                check(message, self.strategies)
            except MemoryError:
                raise
            except Exception as error:
                return self.bury(message, error)
            return None if self._postpone(message) else handle(message)

        return check_and_handle

    def on_decode_error(self, message: Any, exc: BaseException) -> None:
        """Bury what cannot be decoded; called by kombu's consumers, also those of remote control."""
        self.bury(message, exc)

    def on_unknown_message(self, body: Any, message: Any) -> None:  # noqa: ARG002 - Celery's name
        self.bury(message, ValueError("it is not a task message"))

    def on_unknown_task(self, body: Any, message: Any, exc: BaseException) -> None:  # noqa: ARG002 - Celery's name
        """Bury a task that this worker does not know."""
        self.bury(message, exc)

    def on_invalid_task(self, body: Any, message: Any, exc: BaseException) -> None:  # noqa: ARG002 - Celery's name
        """Bury a task that Celery refuses."""
        self.bury(message, exc)

    def bury(self, message: Any, error: BaseException) -> None:
        """Move a message to its queue's dead letters with the reason: a confirmed copy, then the acknowledgement.

        The message frees its slot now; the broker is used later. A message that is settled already, or that another
        consumer than the one for tasks received, is only logged.
        """
        consumer, why = self.task_consumer, reason(error)
        if consumer is None or getattr(message, "channel", None) is not consumer.channel:
            logger.error("Control message dropped: %s", why, exc_info=_unexpected(error))
            return
        if message.acknowledged:
            logger.error("Failure after a message was settled: %s", why, exc_info=error)
            return
        queue = consumer.queue_of(message)
        target = self._target(queue)
        logger.error(BURIED if target else DROPPED, why, exc_info=_unexpected(error), extra={"queue": queue})
        if target is None or UNREADABLE in message.properties:
            message.reject_log_error(logger, self.connection_errors)
        else:
            self._submit(consumer, message, target, {**_short_representations(message.headers), REASON_HEADER: why})
        task_rejected.send(sender=self, message=message, exc=error)
        headers = message.headers or {}
        run = headers.get(staged_calls.RUN_HEADER)
        if isinstance(run, str) and len(run) <= MAX_ID and run.isprintable():
            task, task_id = str(headers.get("task")), str(headers.get("id"))
            staged_calls.note(staged_calls.Note(run, "", staged_calls.End.FAILED, task=task, task_id=task_id))

    def _postpone(self, message: Any) -> bool:
        """Return a task that is due later to the broker's delay, if it has one: here it would hold a slot until then.

        A message of this project arrives when it is due; one that was moved or published by others may not.
        """
        consumer, seconds = self.task_consumer, seconds_ahead(message)
        if seconds < POSTPONED_SECONDS:
            return False
        queue = consumer.queue_of(message)
        target = None if queue is None else _delay(kind_of(self.connection), message, seconds, queue)
        if target is None:
            return False
        logger.info("Message postponed by the broker until its ETA", extra={"queue": queue, "seconds": round(seconds)})
        self._submit(consumer, message, target, {})
        return True

    def _submit(self, consumer: Any, message: Any, target: tuple[str, str], headers: dict[str, str]) -> None:
        def settle(how: Callable[[], Any]) -> None:
            if consumer is not self.task_consumer or message.acknowledged:
                return  # Its connection was lost: the broker delivers it again.
            try:
                how()
            except self.connection_errors as error:
                logger.warning("Buried message not acknowledged; it may be delivered again: %r", error)

        self.dead_letters.submit(
            DeadLetter(
                message,
                *target,
                headers,
                stored=partial(settle, message.ack),
                refused=partial(settle, message.reject),
                requeue=partial(settle, message.requeue),
            )
        )
        if not self.dead_letters.is_full:
            consumer.set_aside(message.delivery_tag)

    def _target(self, queue: str | None) -> tuple[str, str] | None:
        """Return the exchange and the routing key of a queue's dead letters; None where the broker keeps none."""
        if queue is None or queue not in self.app.amqp.queues or not kind_of(self.connection).routes:
            return None
        arguments = self.app.amqp.queues[queue].queue_arguments or {}
        exchange = arguments.get("x-dead-letter-exchange")
        return None if exchange is None else (exchange, arguments.get("x-dead-letter-routing-key") or queue)

    def _connect_confirming(self) -> Connection:
        connection = self.app.connection_for_write()
        options = {**(connection.transport_options or {}), "confirm_publish": True}
        return connection.clone(transport_options=options, heartbeat=0)

    def _declare(self, connection: Connection) -> None:
        declare(self.app.topology, connection)

    def _guard_start(self) -> None:
        """Guard the hand-over to the pool: with a semaphore it happens later, after a child's answer."""
        controller = self.controller
        start = celery_internals.task_starter(controller)
        if start is None:
            return

        def start_or_bury(request: Any) -> None:
            try:
                start(request)
            except Exception as error:
                has_started = request.time_start is not None or request.message.acknowledged
                if has_started or _is_not_the_messages(error, self.connection):
                    raise
                state.task_ready(request)
                self.bury(request.message, error)
                if release := celery_internals.semaphore_release(controller):
                    release()

        celery_internals.set_task_starter(controller, start_or_bury)
        if self.on_task_request == start:
            self.on_task_request = start_or_bury


def reason(error: BaseException) -> str:
    """Return one bounded line of plain text about an error."""
    text = "".join(character if character.isprintable() else " " for character in str(error))
    return f"{type(error).__name__}: {text}"[:MAX_REASON]


def _unexpected(error: BaseException) -> BaseException | None:
    """Return an error that this module does not expect, so that its traceback is logged."""
    return None if isinstance(error, ValueError) else error


def _is_not_the_messages(error: Exception, connection: Any) -> bool:
    """Whether an error is the worker's or the connection's: burying a message for it would bury all of them."""
    transport = () if connection is None else (*connection.connection_errors, *connection.channel_errors)
    return isinstance(error, (MemoryError, *transport))


def _short_representations(headers: Any) -> dict[str, str]:
    """Return shorter ``argsrepr`` and ``kwargsrepr`` where the headers would not fit into a frame with a reason."""
    if sum(len(str(value)) for value in headers.values()) < MAX_HEADERS_BYTES:
        return {}
    return {name: str(headers[name])[:200] for name in ("argsrepr", "kwargsrepr") if name in headers}


def _delay(kind: BrokerKind, message: Any, seconds: float, queue: str) -> tuple[str, str] | None:
    """Return the exchange and routing key by which a broker delays a message for its queue; None where it does not."""
    if kind.delay_exchanges:
        key = calculate_routing_key(min(math.ceil(seconds), 2**MAX_NUMBER_OF_BITS_TO_USE - 1), queue)
        return level_name(MAX_LEVEL), key
    # By its header: one that the broker does not read would come back at once.
    return ("", queue) if kind.delays and eta_of(message.headers) is not None else None
