"""A task consumer with one message per free slot, so that none waits in the worker for a process."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from amqp.exceptions import ChannelError, RecoverableConnectionError

from ami import celery_internals
from ami.governor.closable_consumer import ClosableConsumer
from ami.governor.eta import due_at

#: A message this near to its ETA counts as due: the timer may be a little early.
NEAR_SECONDS = 0.5


class SlotConsumer(ClosableConsumer):
    """A task consumer that has as many messages as slots; the number of slots can change at any time.

    On RabbitMQ each slot is a separate consumer with prefetch 1: with quorum queues the prefetch of a consumer is
    fixed for its life (rabbitmq-server#11948), so only the number of consumers can change. A slot is closed before its
    message is acknowledged, never after: the broker cannot have sent another one then. A slot without a message is
    closed with a round trip, and a message that crossed with it still runs.

    Virtual transports read the prefetch from the channel before each fetch; there the channel's ``can_consume`` is
    computed from the slots. A message that an earlier fetch still brings is requeued, which does not count as a
    delivery.

    A message with an ETA takes no slot until it is due: a retry in an hour must not occupy a slot for an hour. Virtual
    transports cannot delay a message, and on RabbitMQ Celery uses the broker's delay for quorum queues only.

    Until :meth:`manage` is called it behaves like kombu's consumer. All methods run on the thread of the worker's loop,
    but an acknowledgement may come from a task's greenlet, or, on virtual transports, from any thread.
    """

    #: How many messages the worker may have at once. A change takes effect as messages are settled, or with ``adjust``.
    slots = 0

    _managed = False
    _handler: Callable[[Any], Any] | None = None

    def manage(
        self,
        multiplier: int,
        call_soon: Callable[..., Any],
        settled: Callable[[Any], None],
        refuses: Callable[[Any], bool],
    ) -> None:
        """Take over before the first consume; each slot holds ``multiplier`` messages.

        ``call_soon`` runs a function on the loop's thread. ``settled`` is called there with the delivery tag of each
        message, and may change :attr:`slots`: on AMQP before the message is settled, on virtual transports before the
        next fetch. ``refuses`` receives each message before Celery does; it settles those for which it returns True.
        """
        self._managed, self._is_started = True, False
        self._multiplier, self._call_soon = multiplier, call_soon
        self._on_settled, self._refuses = settled, refuses
        self._open: dict[str, Any] = {}
        self._outstanding: dict[Any, str | None] = {}
        self._settled: deque[Any] = deque()
        self._set_aside: list[str | None] = []
        self._waiting: dict[Any, float] = {}
        self._next_due = math.inf
        self._adjusting = False
        self.amqp = self.channel.connection.client.transport.driver_type == "amqp"
        if self.amqp:
            self.channel.basic_qos(0, multiplier, False)
        else:
            self._guard_fetches(self.channel.qos)
        self._watch_settling(self.channel)

    @property
    def over_capacity(self) -> bool:
        """Whether the worker has more messages to run than slots; messages that are not due yet do not count."""
        return self._taken > self._allowed if self.amqp else self._free < 0

    def adjust(self) -> None:
        """Open or close slots until there are :attr:`slots`. A slot whose message runs closes when that is settled."""
        if not self._managed or not self._is_started or not self.amqp or self._adjusting:
            return
        self._adjusting = True  # A delivery during a round trip may call this again.
        try:
            while self._set_aside:
                # The message that was set aside occupies its prefetch: only another consumer gets the next one.
                if (aside := self._set_aside.pop()) in self._open:
                    self._close(aside)
            for shut in [tag for tag, queue in self._open.items() if queue.name in self.closed]:
                self._close(shut)
            while self._taken > self._allowed and (tag := self._tag_with_room()):
                self._close(tag)
            while self._consumable and self._taken + self._multiplier <= self._allowed:
                self._open_one()
        except ChannelError as error:
            # The library has reopened the channel without its consumers: only a new connection is usable.
            self._open.clear()
            raise RecoverableConnectionError(f"The channel was closed: {error}") from error
        finally:
            self._adjusting = False

    def set_aside(self, delivery_tag: Any) -> None:
        """Free the slot of a message that will not run and is settled later."""
        if not self._managed or delivery_tag not in self._outstanding:
            return
        if not self.amqp:
            self._settled.append(delivery_tag)
            return
        self._on_settled(delivery_tag)
        tag = self._outstanding.pop(delivery_tag)
        if self._multiplier > 1 or self._adjusting or tag not in self._open:
            self._set_aside.append(tag)
            self.adjust_soon()
            return
        # This message occupies its prefetch: no other can be on its way.
        self._close_behind_its_message(tag)
        if self._is_started and self._taken + self._multiplier <= self._allowed:
            self._open_one()

    def give_up(self, message: Any, error: Exception) -> None:  # noqa: ARG002 - for subclasses
        """Dead-letter a message that must not run, because of ``error``."""
        message.reject(requeue=False)

    def adjust_soon(self) -> None:
        """Adjust on the loop's thread, after the current callback."""
        self._call_soon(self.adjust)

    @property
    def _allowed(self) -> int:
        """How many messages the slots hold; a worker of several queues has its slots on each of them."""
        return self.slots * self._multiplier * (len(self._consumable) if self.amqp else 1)

    @property
    def _consumable(self) -> list[Any]:
        return [queue for name, queue in self._queues.items() if name not in self.closed]

    @property
    def _taken(self) -> int:
        """Open slots, and closed slots whose message still runs, in messages."""
        self._forget_due()
        orphans = [
            tag for number, tag in self._outstanding.items() if tag not in self._open and number not in self._waiting
        ]
        return len(self._open) * self._multiplier + len(orphans)

    @property
    def _free(self) -> int:
        """Slots without a message, on virtual transports; below 0 after slots were lowered or a message became due."""
        while self._settled:
            tag = self._settled.popleft()
            if tag in self._outstanding:
                self._on_settled(tag)
                del self._outstanding[tag]
                self._waiting.pop(tag, None)
        return self._allowed + self._waiting_count - len(self._outstanding)

    @property
    def _waiting_count(self) -> int:
        self._forget_due()
        return len(self._waiting)

    def _forget_due(self) -> None:
        """Count messages that have become due like any other."""
        soon = time.time() + NEAR_SECONDS
        if soon >= self._next_due:
            self._waiting = {tag: due for tag, due in self._waiting.items() if due > soon}
            self._next_due = min(self._waiting.values(), default=math.inf)

    def _tag_with_room(self) -> str | None:
        """Return the slot with the fewest messages to which the broker may send one now, or None."""
        busy = Counter(self._outstanding.values())
        tag = min(self._open, key=lambda tag: busy[tag], default=None)
        return None if tag is None or busy[tag] >= self._multiplier else tag

    def _open_one(self) -> None:
        opened = [queue.name for queue in self._open.values()]
        queue = min(self._consumable, key=lambda queue: opened.count(queue.name))
        tag = f"{self.tag_prefix or ''}slot-{next(self._tags)}"
        self._open[tag] = queue
        queue.consume(tag, self._receive_callback, no_ack=self.no_ack, nowait=True)

    def _close(self, tag: str) -> None:
        """Close a slot without a message; a message that arrives before the broker's answer still runs."""
        del self._open[tag]
        self.channel.basic_cancel(tag)

    def _close_behind_its_message(self, tag: str) -> None:
        """Close a slot whose message is about to be settled: the broker reads the two in that order."""
        del self._open[tag]
        self.channel.basic_cancel(tag, nowait=True)
        self.channel.callbacks.pop(tag, None)

    def consume(self, no_ack: bool | None = None) -> None:
        """Start consuming; see ``kombu.Consumer.consume``."""
        if not self._managed or not self.amqp:
            super().consume(no_ack)
            return
        self._is_started = True
        self.adjust()

    def cancel(self) -> None:
        """Close every slot; running tasks continue."""
        if not self._managed or not self.amqp:
            super().cancel()
            return
        self._is_started = False
        while self._open:
            self._close(next(iter(self._open)))

    close = cancel

    def cancel_by_queue(self, queue: Any) -> None:
        """Close the slots of one queue; see ``kombu.Consumer.cancel_by_queue``."""
        if not self._managed or not self.amqp:
            super().cancel_by_queue(queue)
            return
        name = getattr(queue, "name", queue)
        self._queues.pop(name, None)
        for tag in [tag for tag, of in self._open.items() if of.name == name]:
            self._close(tag)

    def is_closed(self, name: str) -> bool:
        """Whether the queue has no open slot; see ``ClosableConsumer.is_closed``."""
        if not self._managed or not self.amqp:
            return super().is_closed(name)
        return all(queue.name != name for queue in self._open.values())

    @property
    def unsettled(self) -> frozenset[Any]:
        """See ``ClosableConsumer.unsettled``; messages that wait for their ETA do not count."""
        return frozenset(self._outstanding) - frozenset(self._waiting) if self._managed else frozenset()

    def queue_of(self, message: Any) -> str | None:
        """Return the queue of a message; see ``ClosableConsumer.queue_of``."""
        tag = (message.delivery_info or {}).get("consumer_tag")
        return self._open[tag].name if self._managed and self.amqp and tag in self._open else super().queue_of(message)

    def lost_queues(self) -> list[str]:
        """Return the queues with an open slot of which the broker or a command has taken the consumer."""
        if not self._managed or not self.amqp:
            return super().lost_queues()
        lost = {tag: queue.name for tag, queue in self._open.items() if tag not in self.channel.callbacks}
        for tag in lost:
            del self._open[tag]
        return sorted(set(lost.values()))

    def _follow_closed(self) -> None:
        if self._managed and self.amqp:
            self.adjust()
        else:
            super()._follow_closed()

    def consuming_from(self, queue: Any) -> bool:
        """Whether the queue is consumed, also while it has no slot."""
        if not self._managed or not self.amqp:
            return bool(super().consuming_from(queue))
        return self._is_started and getattr(queue, "name", queue) in self._queues

    def qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> Any:
        """Leave the prefetch to the slots once they are managed."""
        if self._managed:
            return None
        return super().qos(prefetch_size, prefetch_count, apply_global)

    @property
    def on_message(self) -> Callable[[Any], Any] | None:
        """The handler of each message; Celery sets it when its loop begins."""
        return self._handler

    @on_message.setter
    def on_message(self, handler: Callable[[Any], Any] | None) -> None:
        if handler is None or not self._managed:
            self._handler = handler
            return
        self._handler = lambda message: None if self._refuses(message) else handler(message)

    def _receive_callback(self, message: Any) -> Any:
        if not self._managed:
            return super()._receive_callback(message)
        tag = message.delivery_info.get("consumer_tag")
        if not self.amqp and self._free <= 0:
            self.channel.basic_reject(message.delivery_tag, requeue=True)
            return None
        self._outstanding[message.delivery_tag] = tag
        due = due_at(message)
        if due and not self.amqp:
            self._wait(message, due)
        handled = super()._receive_callback(message)
        if due > time.time() + NEAR_SECONDS and self.amqp and message.delivery_tag in self._outstanding:
            self._wait(message, due)
            self._set_aside.append(tag)
            self.adjust_soon()
        return handled

    def _wait(self, message: Any, due: float) -> None:
        self._waiting[message.delivery_tag] = due
        self._next_due = min(due, self._next_due)

    def _watch_settling(self, channel: Any) -> None:
        """Wrap the channel's methods that settle a message."""
        for name in ("basic_ack", "basic_reject"):
            setattr(channel, name, self._settling(getattr(channel, name)))

    def _settling(self, settle: Callable[..., Any]) -> Callable[..., Any]:
        def settling(delivery_tag: Any, *args: Any, **kwargs: Any) -> Any:
            if delivery_tag in self._outstanding:
                self._before_settling(delivery_tag)
            return settle(delivery_tag, *args, **kwargs)

        return settling

    def _before_settling(self, delivery_tag: Any) -> None:
        if not self.amqp:
            self._settled.append(delivery_tag)  # Maybe on a task's thread; the loop's thread frees the slot in _free.
            return
        self._on_settled(delivery_tag)
        tag, taken, allowed = self._outstanding[delivery_tag], self._taken, self._allowed
        if tag not in self._open:
            taken -= delivery_tag not in self._waiting
        elif taken > allowed:
            self._close_behind_its_message(tag)
            taken -= self._multiplier
        del self._outstanding[delivery_tag]
        self._waiting.pop(delivery_tag, None)
        if self._is_started and taken + self._multiplier <= allowed:
            self.adjust_soon()

    def _guard_fetches(self, qos: Any) -> None:
        """Let the channel fetch only while a slot is free.

        A fetch that Redis has not answered yet is read in any case, and its message requeued: unread it would neither
        run nor be on the broker.
        """
        qos.can_consume = lambda: self._free > 0 or celery_internals.is_fetching(self.channel)
        qos.can_consume_max_estimate = lambda: max(0, self._free)
