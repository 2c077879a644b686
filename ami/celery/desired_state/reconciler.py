"""Compares what a worker does with what is wanted of it, in the worker's loop, and repairs the difference."""

import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from celery.utils.log import get_logger
from celery.worker import state

from ami.celery import disabled
from ami.celery.declaration import declare
from ami.celery.desired_state.child_control import ChildControl
from ami.celery.desired_state.pool_size import PoolSize
from ami.celery.desired_state.process_facts import snapshot
from ami.celery.desired_state.reporter import Reporter
from ami.celery.desired_state.task_limits import TaskLimits
from ami.celery.desired_state.wanted import Identity, Wanted, wanted

logger = get_logger(__name__)

LOOK_SECONDS = 3.0
#: So soon the next look follows while a queue is closed and a task of it is still on its way to a child.
SETTLE_SECONDS = 0.05
#: How often Celery is told again which tasks are cancelled.
REVOKE_SECONDS = 3600.0


class Reconciler:
    """One per worker; a consumer is attached after each connect. All methods run on the thread of the loop.

    ``repairs`` counts what was found different from what is wanted without a new wish. ``closed`` are the worker's
    queues from which no task can begin, ``unaccounted`` how many delivered messages it does not run.
    """

    def __init__(
        self, identity: Identity, reporter: Reporter, size: PoolSize, limits: TaskLimits, children: ChildControl
    ) -> None:
        self._identity, self._reporter = identity, reporter
        self._size, self._limits, self._children = size, limits, children
        self.repairs: Counter[str] = Counter()
        self.wanted = Wanted()
        self.closed: tuple[str, ...] = ()
        self.turned_at = time.monotonic()
        self._consumer: Any = None
        self._adapter: Callable[[], Any] = lambda: None
        self._on_their_way: dict[str, frozenset[str]] = {}
        self._drifting: set[str] = set()
        self._unknown: frozenset[Any] = frozenset()
        self.unaccounted = 0
        self._revoke_again_at = 0.0

    def attach(self, consumer: Any, adapter: Callable[[], Any]) -> None:
        """Close what is wanted closed before the first consume of a connection. ``adapter`` returns the governor's."""
        self._consumer, self._adapter = consumer, adapter
        self.turned_at = time.monotonic()
        self._on_their_way.clear()
        self._adopt(self._now_wanted())
        consumer.task_consumer.close_queues(self.wanted.closed)
        self._restore_queues()

    def detach(self) -> None:
        """Forget a lost connection's consumer: nothing can begin without one."""
        self._consumer = None

    def look(self) -> float:
        """Compare and repair; return the seconds after which to look again.

        Raises what the broker's connection raises.
        """
        self.turned_at = time.monotonic()
        consumer = self._consumer
        if consumer is None or consumer.task_consumer is None:
            return LOOK_SECONDS
        new = self._now_wanted()
        is_new = new != self.wanted
        self._adopt(new)
        drift = set(self._repair_queues(consumer, is_new=is_new))
        drift |= {"task limits of " + name for name in self._limits.restore(consumer)}
        if self._size.adjust(self.wanted.concurrency, self._adapter()) and not is_new:
            drift.add("pool size")
        self._report(drift)
        self._control_children()
        self._find_unaccounted(consumer.task_consumer)
        return self._settle(consumer.task_consumer)

    def info(self) -> dict[str, Any]:
        """Return what ``celery inspect stats`` shows."""
        return {
            "closed": dict(sorted(self.wanted.closed.items())),
            "confirmed": sorted(self.closed),
            "parked": self.wanted.is_parked,
            "concurrency": self._size.wanted(self.wanted.concurrency),
            "repairs": dict(self.repairs),
        }

    def _now_wanted(self) -> Wanted:
        return wanted(self._reporter.wishes, self._identity, self._reporter.now)

    def _adopt(self, new: Wanted) -> None:
        """Take over what is wanted now, and log what has changed."""
        before, self.wanted = self.wanted, new
        disabled.apply(new.disabled_tasks, new.disabled_jobs)
        # Celery drops a task with such an id when it receives it, and forgets the id after three hours.
        if new.cancelled and (new.cancelled != before.cancelled or self.turned_at >= self._revoke_again_at):
            self._revoke_again_at = self.turned_at + REVOKE_SECONDS
            state.revoked.update(new.cancelled)
        for queue in new.closed.keys() - before.closed.keys():
            logger.warning("Queue closed: %s", new.closed[queue], extra={"queue": queue})
        for queue in before.closed.keys() - new.closed.keys():
            logger.warning("Queue open again", extra={"queue": queue})
        if new.concurrency != before.concurrency:
            logger.warning("Concurrency set to %d", self._size.wanted(new.concurrency))

    def _restore_queues(self) -> list[str]:
        """Consume from every own queue again that a command has cancelled."""
        selected = self._consumer.app.amqp.queues.consume_from
        lost = [queue for queue in self._identity.queues if queue not in selected]
        for queue in lost:
            self._consumer.add_task_queue(queue)
        return [f"consumer of {queue}" for queue in lost]

    def _repair_queues(self, consumer: Any, *, is_new: bool) -> list[str]:
        tasks = consumer.task_consumer
        drift = self._restore_queues()
        for queue in [name for name in consumer.app.amqp.queues.consume_from if self._is_foreign(name)]:
            consumer.cancel_task_queue(queue)
            drift.append(f"foreign queue {queue}")
        drift += [f"consumer of {queue}" for queue in tasks.lost_queues()]
        closed = frozenset(self.wanted.closed)
        if not is_new and (tasks.closed != closed or tasks.leaking_queues()):
            drift.append("closed queues")
        if drift or tasks.closed != closed:
            if opened := tasks.closed - closed:
                self._declare(opened)
            tasks.close_queues(closed)
        return drift

    def _declare(self, queues: Collection[str]) -> None:
        """Bind queues that are opened: after a rollback the fallback queue has their keys."""
        app = self._consumer.app
        topology: Any = getattr(app, "topology", None)
        if own := [queue for queue in queues if topology is not None and queue in topology.queues]:
            with app.connection_for_write() as connection:
                declare(topology, connection, own=own)

    def _is_foreign(self, queue: str) -> bool:
        """Whether another workload's worker consumes the queue: this one would undo the split."""
        topology = getattr(self._consumer.app, "topology", None)
        return topology is not None and queue in topology.queues and queue not in self._identity.queues

    def _report(self, drift: set[str]) -> None:
        for what in sorted(drift):
            self.repairs[what.partition(" of ")[0].partition(" queue ")[0]] += 1
            if what not in self._drifting:
                logger.warning("Repaired: %s was not as wanted", what, extra={"worker": self._identity.node})
        self._drifting = drift
        if drift:
            self._reporter.wake()

    def _control_children(self) -> None:
        adapter = self._adapter()
        if self.wanted.is_stopped:
            self._children.stop_tasks(adapter)
        if adapter is None:
            return
        self._children.end_stalled(adapter)
        if self.wanted.cancelled:
            self._children.cancel_tasks(adapter, self.wanted.cancelled)
        if self.wanted.restarted:
            self._children.restart(adapter, self.wanted.restarted, self._reporter.now)
        else:
            self._children.note(adapter, self._reporter.now)

    def _find_unaccounted(self, tasks: Any) -> None:
        """Count delivered messages that this worker neither runs nor is about to, at two looks in a row."""
        requests = {*snapshot(state.reserved_requests), *snapshot(state.active_requests)}
        unknown = tasks.unsettled - {request.message.delivery_tag for request in requests}
        found = len(unknown & self._unknown)
        if found > self.unaccounted:
            logger.error(
                "%d delivered messages are not settled and not run", found, extra={"worker": self._identity.node}
            )
        self._unknown, self.unaccounted = unknown, found

    def _settle(self, tasks: Any) -> float:
        """Note which queues are closed for good: no delivered message of them waits for a child any more."""
        waiting = {request.id for request in snapshot(state.reserved_requests)} - {
            request.id for request in snapshot(state.active_requests)
        }
        shut = [queue for queue in self.wanted.closed if tasks.is_closed(queue)]
        self._on_their_way = {queue: self._on_their_way.get(queue, frozenset(waiting)) & waiting for queue in shut}
        closed = tuple(sorted(queue for queue, left in self._on_their_way.items() if not left))
        if closed != self.closed:
            self.closed = closed
            self._reporter.wake()
        return LOOK_SECONDS if len(closed) == len(self.wanted.closed) else SETTLE_SECONDS
