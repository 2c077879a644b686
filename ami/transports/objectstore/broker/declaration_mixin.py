"""The part of a channel that declares, deletes and counts: exchanges, queues and bindings."""

import time
import uuid
from typing import Any, NamedTuple

from amqp.exceptions import AccessRefused, NotFound, PreconditionFailed
from kombu.transport.base import to_rabbitmq_queue_arguments

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.dead_letters import move_dead_letters
from ami.transports.objectstore.broker.declarations import Declarations, ExchangeRecord, QueueRecord
from ami.transports.objectstore.broker.exclusive_queues import is_left_behind, refuse_locked
from ami.transports.objectstore.broker.names import check_name, refuse_reserved
from ami.transports.objectstore.broker.queue_arguments import check_arguments
from ami.transports.objectstore.queue.commands import Purge, Sweep
from ami.transports.objectstore.storage.errors import DamageError, StorageError


class DeclareOk(NamedTuple):
    """The answer to a declaration. Only a passive one counts, because counting reads the whole queue."""

    queue: str
    message_count: int
    consumer_count: int


class DeclarationMixin:
    """Mixed into the channel; ``broker`` and ``owner`` are the connection's."""

    owner: str
    connection: Any

    @property
    def broker(self) -> BrokerStorage:
        raise NotImplementedError

    def exchange_declare(
        self,
        exchange: str = "",
        type: str = "direct",  # noqa: A002 - kombu's name
        durable: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        passive: bool = False,
        **_: Any,
    ) -> None:
        """Declare an exchange. Raises amqp's NotFound (passive), PreconditionFailed."""
        if not exchange:
            return
        if passive:
            self._exchange(exchange)
            return
        check_name("exchange", exchange)
        if self.broker.declarations.current().exchange(exchange) is None:
            refuse_reserved("exchange", exchange)
        record = ExchangeRecord(type or "direct", durable, auto_delete, arguments or {})
        self.broker.declarations.change(lambda known: known.with_exchange(exchange, record))

    def exchange_delete(self, exchange: str, if_unused: bool = False, **_: Any) -> None:
        """Delete an exchange with its bindings; its queues stay. Raises amqp's PreconditionFailed (``if_unused``)."""

        def without(known: Declarations) -> Declarations:
            if if_unused and any(source == exchange for source, _, _ in known.bindings):
                raise PreconditionFailed(f"PRECONDITION_FAILED - exchange '{exchange}' in use")
            return known.without_exchange(exchange)

        self.broker.declarations.change(without)

    def prepare_queue_arguments(self, arguments: dict[str, Any] | None, **keywords: Any) -> dict[str, Any]:
        """Return a queue's arguments with those that kombu has keywords for: ``message_ttl``, ``max_length`` ..."""
        prepared: dict[str, Any] = to_rabbitmq_queue_arguments(arguments or {}, **keywords)
        return prepared

    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        **_: Any,
    ) -> DeclareOk:
        """Declare a queue, or count its messages (passive).

        Raises amqp's NotFound (passive), PreconditionFailed, AccessRefused, ResourceLocked. Nothing is written then.
        """
        if passive:
            self._queue(queue)
            return DeclareOk(queue, self._size(queue), self.broker.consumers.count(queue))
        check_name("queue", queue)
        check_arguments(queue, arguments or {}, ends_with_owner=auto_delete or exclusive)
        is_new = queue not in self.broker.declarations.current().queues
        if is_new:
            refuse_reserved("queue", queue)
        queue = queue or f"amq.gen-{uuid.uuid4().hex}"
        owner = self.owner if exclusive or auto_delete else None
        record = QueueRecord(durable, auto_delete, exclusive, arguments or {}, owner)
        replaces = False
        if not is_new:
            known = self._queue(queue)
            refuse_locked(self.broker, queue, known, self.owner)
            replaces = is_left_behind(self.broker, queue, known, self.owner)
        self.broker.declarations.change(lambda known: known.with_queue(queue, record, replaces=replaces))
        self._configure(queue, record, is_new)
        if exclusive:
            self.connection.exclusive_queues.add(queue)
        return DeclareOk(queue, 0, 0)

    def _configure(self, queue: str, record: QueueRecord, is_new: bool) -> None:
        try:
            self.broker.configure(queue, record, is_new=is_new)
        except StorageError as error:
            if is_new:
                raise
            # It was done before, but for a process that was killed; what a damaged queue holds can be consumed.
            self.broker.log_once(f"The limits of {queue} cannot be written: {error}", queue=queue)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> int:
        """Delete a queue with its messages; return how many it had, 0 for a damaged one.

        Raises amqp's PreconditionFailed, and DamageError where it is not known whether a queue is empty (``if_empty``).
        """
        if queue not in self.broker.declarations.current(fresh=True).queues:
            return 0
        try:
            count = self._size(queue)
        except DamageError:
            if if_empty:
                raise
            count = 0
        if if_empty and count:
            raise PreconditionFailed(f"PRECONDITION_FAILED - queue '{queue}' not empty")
        if if_unused and self.broker.consumers.count(queue):
            raise PreconditionFailed(f"PRECONDITION_FAILED - queue '{queue}' in use")
        self.broker.delete(queue)
        return count

    def queue_bind(self, queue: str, exchange: str = "", routing_key: str = "", **_: Any) -> None:
        """Bind a queue. Raises amqp's NotFound, PreconditionFailed, AccessRefused (the default exchange)."""
        check_name("routing key", routing_key or "")
        if not exchange:
            raise AccessRefused("ACCESS_REFUSED - operation not permitted on the default exchange")
        self._exchange(exchange)
        self._queue(queue)
        self.broker.declarations.change(lambda known: known.with_binding(exchange, queue, routing_key or ""))

    def queue_unbind(self, queue: str, exchange: str = "", routing_key: str = "", **_: Any) -> None:
        self.broker.declarations.change(lambda known: known.without_binding(exchange, queue, routing_key or ""))

    def queue_purge(self, queue: str, **_: Any) -> int:
        """Remove every waiting message; return how many. Raises amqp's NotFound."""
        self._queue(queue)
        [count] = self.broker.store(queue).commit([Purge()])
        return int(count)

    def list_bindings(self) -> list[tuple[str, str, str]]:
        """Return (queue, exchange, routing key) of every binding."""
        return [(queue, exchange, key) for exchange, queue, key in sorted(self.broker.declarations.current().bindings)]

    def _size(self, queue: str) -> int:
        store = self.broker.store(queue)
        with store.lock:
            state = store.look()
            if state.is_overdue(time.time()):
                store.commit([Sweep()], durable=False)
                state = store.look()
            depth = state.depth()
        if store.holds_buried:
            move_dead_letters(self.broker, queue)
        return depth

    def _exchange(self, name: str) -> ExchangeRecord:
        record = self.broker.declarations.current().exchange(name)
        if record is None:
            record = self.broker.declarations.current(fresh=True).exchange(name)
        if record is None:
            raise NotFound(f"NOT_FOUND - no exchange '{name}'", (40, 10), "Exchange.declare")
        return record

    def _queue(self, name: str) -> QueueRecord:
        record = self.broker.declarations.current().queues.get(name)
        if record is None:
            record = self.broker.declarations.current(fresh=True).queues.get(name)
        if record is None:
            raise NotFound(f"NOT_FOUND - no queue '{name}'", (50, 10), "Queue.declare")
        return record
