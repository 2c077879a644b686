"""Publishes many tasks with few waits for the broker: what ``apply_async`` does in a loop, in batches."""

from collections.abc import Iterable, Iterator
from typing import Any

from amqp.exceptions import MessageNacked, NotFound
from celery import Celery, Signature
from kombu.exceptions import BatchPublishError, OperationalError

from ami import celery_internals
from ami.celery.bulk_message import BulkMessage, MessageBuilder, UnconfirmedTasks, id_of, with_id
from ami.celery.confirms import is_confirming, publish_confirmed

#: A batch ends with whichever of them is reached first.
BATCH_MESSAGES = 1000
BATCH_BYTES = 4 * 1024**2


def publish_many(app: Celery, signatures: Iterable[Signature]) -> list[str]:
    """Publish a task for each signature; return their ids, in the same order.

    Each message is what ``signature.apply_async()`` would publish, with the same signals, in the same order per queue.
    The broker confirms a batch at once: on RabbitMQ with confirmations that are waited for together, on a folder with
    one append and one sync per queue, on Redis with one pipeline. A signature that is more than a message to be sent
    now (canvas, a delay, callbacks) is published by its own ``apply_async``, in its turn. The signatures may come from
    a generator; one batch of them is in memory.

    A lost connection and a refusal are retried by ``task_publish_retry_policy``, with the same ids and only for what
    is not confirmed: a task may be published twice, under one id. A broker that does not answer is not retried.

    Raises:
        UnconfirmedTasks: not every task is confirmed; it has the signatures that are to be published again.
        Exception: what ``apply_async`` raises for a signature that cannot be published. Those before it are.
    """
    return _BulkPublisher(app).publish(iter(signatures))


class _BulkPublisher:
    """Holds a producer of the application's pool only while it sends: the pool may have a single one."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._write = app.connection_for_write()  # Not opened: it only tells the kind of broker.
        self._builder = MessageBuilder(app, self._write)
        self._batch: dict[int, BulkMessage] = {}
        self._bytes = 0
        self._ids: list[str] = []
        self._confirmed: list[str] = []

    def publish(self, waiting: Iterator[Signature]) -> list[str]:
        try:
            for signature in waiting:
                self._add(signature, waiting)
        except Exception:
            self._flush(waiting)  # What came before it is published, as in a loop.
            raise
        self._flush(waiting)
        return self._ids

    def _add(self, signature: Signature, waiting: Iterator[Signature]) -> None:
        message = self._builder.build(signature)
        if message is None:
            self._flush(waiting)
            self._apply(signature, waiting)
            return
        self._batch[len(self._ids)] = message
        self._ids.append(message.task_id)
        self._bytes += message.size_bytes
        if len(self._batch) >= BATCH_MESSAGES or self._bytes >= BATCH_BYTES:
            self._flush(waiting)

    def _apply(self, signature: Signature, waiting: Iterator[Signature]) -> None:
        """Publish a signature by its own ``apply_async``."""
        options = {} if signature.get("subtask_type") else {"task_id": id_of(signature.options)}
        try:
            result = self._applied(signature, options)
        except self._errors() as error:
            raise self._unconfirmed([with_id(signature, **options)], waiting, error) from error
        task_id = options.get("task_id") or result.id
        self._ids.append(task_id)
        self._confirmed.append(task_id)

    def _applied(self, signature: Signature, options: dict[str, Any]) -> Any:
        task = None if signature.get("subtask_type") else self._app.tasks.get(signature.task)
        if task is None:
            return signature.apply_async(**options)
        given = {"args": signature.args} if signature.args else {}
        return task.apply_async(**given, kwargs=signature.kwargs, **{**signature.options, **options})

    def _flush(self, waiting: Iterator[Signature]) -> None:
        """Publish the batch. Raises UnconfirmedTasks."""
        batch, self._batch, self._bytes = self._batch, {}, 0
        if not batch:
            return
        open_ = dict(batch)
        try:
            with self._app.producer_or_acquire() as producer:
                for message in batch.values():
                    if message.has_result:
                        self._app.backend.on_task_call(producer, message.task_id)
                self._send(producer, open_)
        except self._errors() as error:
            left = [with_id(message.signature, message.task_id) for message in open_.values()]
            self._announce(batch, open_)
            raise self._unconfirmed(left, waiting, error) from error
        self._announce(batch, open_)

    def _errors(self) -> tuple[type[BaseException], ...]:
        """Return the errors of broker and network. Any other, a time limit, ends the call as it ends a loop."""
        connection = self._write
        return (
            OperationalError,
            MessageNacked,
            *connection.connection_errors,
            *connection.channel_errors,
            *connection.recoverable_connection_errors,
        )

    def _announce(self, batch: dict[int, BulkMessage], left: dict[int, BulkMessage]) -> None:
        sent = [message for number, message in batch.items() if number not in left]
        self._confirmed += [message.task_id for message in sent]
        for message in sent:
            message.announce()
        if events := [message.event for message in sent if message.event]:
            dispatcher = celery_internals.event_dispatcher(self._app.amqp)
            with self._app.producer_or_acquire() as producer:
                for event in events:
                    dispatcher.publish("task-sent", event, producer, retry=True)

    def _unconfirmed(
        self, left: list[Signature], waiting: Iterator[Signature], error: BaseException
    ) -> UnconfirmedTasks:
        return UnconfirmedTasks(self._confirmed, [*left, *map(with_id, waiting)], error)

    def _send(self, producer: Any, messages: dict[int, BulkMessage]) -> None:
        """Publish messages, and remove from ``messages`` those that the broker has; tried again as the policy says."""
        conf, connection = self._app.conf, producer.connection

        def once() -> None:
            self._send_once(producer, messages)

        send: Any = once
        if conf.task_publish_retry:
            policy = dict(conf.task_publish_retry_policy)
            connection.transport_options.update(policy)
            send = connection.ensure(producer, once, **policy)
        declare = getattr(self._app, "declare_everything", None)
        try:
            send()
        except NotFound:
            if declare is None:
                raise
            declare()
            send()

    def _send_once(self, producer: Any, messages: dict[int, BulkMessage]) -> None:
        # Each once: to look whether one is declared already takes longer than to build a message.
        for entity in {id(entity): entity for message in messages.values() for entity in message.declare}.values():
            producer.maybe_declare(entity)
        if is_confirming(producer.connection):
            publish_confirmed(producer, messages)
        elif producer.supports_batch_publish:
            try:
                with producer.batch(max_size=BATCH_MESSAGES):
                    for message in messages.values():
                        celery_internals.publish_serialized(producer, message.arguments)
            except BatchPublishError as error:
                raise error.__cause__ or error from None
            messages.clear()
        else:
            for number, message in list(messages.items()):
                celery_internals.publish_serialized(producer, message.arguments)
                del messages[number]
