"""The part of a channel that declares, deletes and counts: exchanges, queues and bindings."""

import time
import uuid
from typing import Any, NamedTuple

from amqp.exceptions import NotFound

from ami.transports.objectstore.broker.broker_storage import BrokerStorage
from ami.transports.objectstore.broker.dead_letters import move_dead_letters
from ami.transports.objectstore.broker.declarations import ExchangeRecord, QueueRecord
from ami.transports.objectstore.queue.commands import Purge, Sweep


class DeclareOk(NamedTuple):
    """The answer to a declaration. Only a passive one counts, because counting reads the whole queue."""

    queue: str
    message_count: int
    consumer_count: int


class DeclarationMixin:
    """Mixed into the channel; ``broker`` and ``owner`` are the connection's."""

    owner: str

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
        record = ExchangeRecord(type or "direct", durable, auto_delete, arguments or {})
        self.broker.declarations.change(lambda known: known.with_exchange(exchange, record))

    def exchange_delete(self, exchange: str, **_: Any) -> None:
        """Delete an exchange with its bindings; its queues stay."""
        self.broker.declarations.change(lambda known: known.without_exchange(exchange))

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
        """Declare a queue, or count its messages (passive). Raises amqp's NotFound (passive), PreconditionFailed."""
        if passive:
            self._queue(queue)
            return DeclareOk(queue, self._size(queue), self.broker.consumers.count(queue))
        queue = queue or f"amq.gen-{uuid.uuid4().hex}"
        owner = self.owner if exclusive or auto_delete else None
        record = QueueRecord(durable, auto_delete, exclusive, arguments or {}, owner)
        is_new = queue not in self.broker.declarations.current().queues
        self.broker.declarations.change(lambda known: known.with_queue(queue, record))
        if is_new:
            self.broker.configure(queue, record)
        return DeclareOk(queue, 0, 0)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> int:
        """Delete a queue with its messages; return how many it had."""
        if queue not in self.broker.declarations.current(fresh=True).queues:
            return 0
        count = self._size(queue)
        if (if_empty and count) or (if_unused and self.broker.consumers.count(queue)):
            return 0
        self.broker.declarations.change(lambda known: known.without_queue(queue))
        self.broker.destroy(queue)
        return count

    def queue_bind(self, queue: str, exchange: str = "", routing_key: str = "", **_: Any) -> None:
        """Bind a queue. Raises amqp's NotFound."""
        if exchange:
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
        record = self.broker.declarations.current().exchanges.get(name)
        if record is None:
            record = self.broker.declarations.current(fresh=True).exchanges.get(name)
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
