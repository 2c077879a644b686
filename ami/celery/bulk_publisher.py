"""Publishes many tasks with few waits for the broker: what ``apply_async`` does in a loop, in batches."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from amqp.exceptions import MessageNacked, NotFound
from celery import Celery, Signature
from celery.utils import uuid
from kombu.exceptions import BatchPublishError, OperationalError
from kombu.utils.functional import retry_over_time

from ami.celery.confirming_connection import declared, publish_confirmed
from ami.celery.message_collector import CollectedMessage, MessageCollector

#: A batch ends with whichever of them is reached first.
BATCH_MESSAGES = 1000
BATCH_BYTES = 4 * 1024**2


class UnconfirmedTasks(OperationalError):
    """The broker has not confirmed every task of a call of ``publish_many``; the cause says why.

    ``confirmed`` are the ids of those that it has. ``unconfirmed`` are the signatures of the others, each with its id:
    publishing them again completes the call, and a task that the broker had all the same keeps its id.
    """

    def __init__(self, confirmed: list[str], unconfirmed: list[Signature], cause: BaseException) -> None:
        count = len(confirmed) + len(unconfirmed)
        super().__init__(f"The broker confirmed {len(confirmed)} of {count} tasks; publish the others again: {cause}")
        self.confirmed, self.unconfirmed = confirmed, unconfirmed


def with_id(signature: Signature, task_id: str | None = None) -> Signature:
    """Return a copy of a signature that has an id: its own, this one, or a new one."""
    copy = signature.clone()
    copy.options["task_id"] = task_id or copy.options.get("task_id") or uuid()
    return copy


def publish_many(app: Celery, signatures: Iterable[Signature]) -> list[str]:
    """Publish a task for each signature; return their ids, in the same order.

    Each message is made by the ``apply_async`` of its task and kept, and a batch is published at once, in the same
    order per queue: on RabbitMQ on a connection of its own with one wait for all confirmations, on a folder with one
    append and one sync per queue, on Redis with one pipeline. ``after_task_publish`` comes when a message is made,
    before the broker has it. Canvas is published by its own ``apply_async``, in its turn. The signatures may come from
    a generator; one batch of them is in memory.

    A lost connection and a refusal are retried by ``task_publish_retry_policy``, with the same ids and only for what
    is not confirmed: a task may be published twice, under one id. A broker that does not answer is not retried.

    Raises:
        UnconfirmedTasks: not every task is confirmed; it has the signatures that are to be published again.
        Exception: what ``apply_async`` raises for a signature that cannot be published. Those before it are.
    """
    return _BulkPublisher(app).publish(iter(signatures))


@dataclass(frozen=True, slots=True)
class _Task:
    """A task of the batch; beside its message there may be an event."""

    signature: Signature
    task_id: str
    messages: list[CollectedMessage]

    @property
    def is_confirmed(self) -> bool:
        return all(each.is_confirmed for each in self.messages)


class _BulkPublisher:
    """Holds a producer of the application's pool only while it sends: the pool may have a single one."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._write = app.connection_for_write()  # It tells the kind of broker.
        self._collector = MessageCollector(self._write)
        self._batch: list[_Task] = []
        self._ids: list[str] = []
        self._confirmed: list[str] = []

    def publish(self, waiting: Iterator[Signature]) -> list[str]:
        try:
            for signature in waiting:
                self._add(signature, waiting)
        except Exception:
            self._flush(waiting)  # What came before it is published, as in a loop.
            raise
        else:
            self._flush(waiting)
        finally:
            self._write.collect()  # A result backend may have used it.
        return self._ids

    def _add(self, signature: Signature, waiting: Iterator[Signature]) -> None:
        if type(signature) is not Signature or signature.get("subtask_type"):
            self._flush(waiting)
            self._apply_canvas(signature, waiting)
            return
        collector, task_id = self._collector, signature.options.get("task_id") or uuid()
        before = len(collector.messages)
        try:
            self._apply(signature, task_id)
        except self._errors() as error:
            left = chain([with_id(signature, task_id)], waiting)
            self._flush(left)
            raise self._unconfirmed([], left, error) from error
        self._ids.append(task_id)
        self._batch.append(_Task(signature, task_id, collector.messages[before:]))
        if len(collector.messages) >= BATCH_MESSAGES or collector.size_bytes >= BATCH_BYTES:
            self._flush(waiting)

    def _apply(self, signature: Signature, task_id: str) -> None:
        """Let a signature add its messages, if it has any: it may become a row, or run eagerly."""
        own = {"task_id": task_id, "producer": self._collector}
        task = self._app.tasks.get(signature.task)
        if task is None:
            signature.apply_async(**own)
            return
        given = {"args": signature.args} if signature.args else {}
        task.apply_async(**given, kwargs=signature.kwargs, **{**signature.options, **own})

    def _apply_canvas(self, signature: Signature, waiting: Iterator[Signature]) -> None:
        try:
            result = signature.apply_async()
        except self._errors() as error:
            raise self._unconfirmed([with_id(signature)], waiting, error) from error
        self._ids.append(result.id)
        self._confirmed.append(result.id)

    def _flush(self, waiting: Iterator[Signature]) -> None:
        """Publish the batch. Raises UnconfirmedTasks."""
        batch, self._batch = self._batch, []
        try:
            if messages := self._collector.take():
                self._send(messages)
        except self._errors() as error:
            self._confirmed += [each.task_id for each in batch if each.is_confirmed]
            left = [with_id(each.signature, each.task_id) for each in batch if not each.is_confirmed]
            raise self._unconfirmed(left, waiting, error) from error
        self._confirmed += [each.task_id for each in batch]

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

    def _unconfirmed(
        self, left: list[Signature], waiting: Iterator[Signature], error: BaseException
    ) -> UnconfirmedTasks:
        return UnconfirmedTasks(self._confirmed, [*left, *map(with_id, waiting)], error)

    def _send(self, messages: list[CollectedMessage]) -> None:
        """Publish messages and note which of them the broker has; tried again as the policy says."""
        send = self._send_confirmed if self._write.transport.driver_type == "amqp" else self._send_pooled
        declare = getattr(self._app, "declare_everything", None)
        try:
            send(messages)
        except NotFound:
            if declare is None:
                raise
            declare()
            send(messages)

    def _send_confirmed(self, messages: list[CollectedMessage]) -> None:
        def once() -> None:
            publish_confirmed(self._app, [each for each in messages if not each.is_confirmed])

        policy = self._policy() or {"max_retries": 0}
        errors = self._write.recoverable_connection_errors + self._write.recoverable_channel_errors
        retry_over_time(once, errors + tuple(policy.pop("retry_errors", None) or ()), **policy)

    def _send_pooled(self, messages: list[CollectedMessage]) -> None:
        with self._app.producer_or_acquire() as producer:

            def once() -> None:
                _send_once(producer, messages)

            if policy := self._policy():
                producer.connection.transport_options.update(policy)
                once = producer.connection.ensure(producer, once, **policy)
            once()

    def _policy(self) -> dict[str, Any]:
        conf = self._app.conf
        return dict(conf.task_publish_retry_policy) if conf.task_publish_retry else {}


def _send_once(producer: Any, messages: list[CollectedMessage]) -> None:
    """Publish messages of which none is stored, or in a batch all."""
    left = [each for each in messages if not each.is_confirmed]
    for entity in declared(left):
        producer.maybe_declare(entity)
    if not producer.supports_batch_publish:
        for message in left:
            producer.publish(message.body, **message.options)
            message.is_confirmed = True
        return
    try:
        with producer.batch(max_size=BATCH_MESSAGES):
            for message in left:
                producer.publish(message.body, **message.options)
    except BatchPublishError as error:
        raise error.__cause__ or error from None
    for message in left:
        message.is_confirmed = True
