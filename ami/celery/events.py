"""A worker's events: in batches, only while they have a reader, and without waiting for the broker."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from celery.app.events import Events as CeleryEvents
from celery.events.dispatcher import EventDispatcher as CeleryEventDispatcher
from celery.utils.log import get_logger
from kombu.asynchronous import get_event_loop
from kombu.connection import PooledConnection

from ami import celery_internals
from ami.celery.broker_kind import kind_of

logger = get_logger(__name__)

#: The events of tasks wait so long, or until there are so many, and are published as one message.
FLUSH_SECONDS, FLUSH_EVENTS = 0.1, 200

#: How often RabbitMQ is asked whether the events of tasks have a reader.
ASK_SECONDS = 1.0


class EventDispatcher(CeleryEventDispatcher):
    """Publishes without waiting for confirmations where it has a connection of its own, as a worker's has.

    A worker sends events from its loop. While RabbitMQ is short of disk or memory it confirms nothing and reads nothing
    from publishers: waiting for either would stop the loop, and with it all work (incident 7). Under gevent the loop
    would read the confirmation itself, and the greenlet waiting for it would never end.

    A pooled connection is left as it is: tasks are published on it.

    A reader of events (Flower, ``celery events``) binds a queue to their exchange. Once a second a batch is published
    as mandatory: if RabbitMQ returns it, there is no reader, and the events of tasks are dropped until the next one. A
    reader that comes while the worker is busy misses those of a second at most; if no task ran in that second, none.
    """

    is_blocked = False
    is_unread = False

    _can_ask = _asks = _is_flush_due = False
    _ask_at = 0.0

    def __init__(self, *args: Any, on_send_buffered: Callable[[], Any] | None = None, **options: Any) -> None:
        flush = self._flush_later if on_send_buffered else None
        super().__init__(*args, on_send_buffered=flush, **{"buffer_limit": FLUSH_EVENTS, **options})

    def enable(self) -> None:
        super().enable()
        connection = self.connection
        if connection and not isinstance(connection, PooledConnection) and kind_of(connection).confirms:
            channel = connection.default_channel
            channel.basic_publish = self._unconfirmed(celery_internals.publish_unconfirmed(channel))
            channel.events["basic_return"].add(self._on_returned)
            self._can_ask = True
            connection.connection.on_blocked = self._on_blocked
            connection.connection.on_unblocked = self._on_unblocked

    def send(self, type: str, *args: Any, **fields: Any) -> Any:  # noqa: A002 - Celery's name
        """Send an event; drop a task's event while task events have no reader."""
        if not self.is_unread or not type.startswith("task-"):
            return super().send(type, *args, **fields)
        if time.monotonic() < self._ask_at:
            return None
        self.is_unread = False
        super().send(type, *args, **fields)
        return self.flush()  # Alone, so that the broker returns little.

    def before_close(self) -> None:
        """Publish what waits; drop the connection if the broker does not read: closing it in order would wait."""
        if self._is_still_blocked():
            self.connection.collect()
        else:
            self.flush()

    def _publish(self, event: Any, producer: Any, routing_key: str, *args: Any, **kwargs: Any) -> None:
        if self._is_still_blocked():
            return
        self._asks = self._can_ask and isinstance(event, list) and time.monotonic() >= self._ask_at
        if self._asks:
            self._ask_at = time.monotonic() + ASK_SECONDS
        super()._publish(event, producer, routing_key, *args, **kwargs)

    def _unconfirmed(self, publish: Callable[..., Any]) -> Callable[..., Any]:
        """Return the channel's publish without confirmation, as mandatory where it asks for a reader."""

        def publish_event(*args: Any, **kwargs: Any) -> Any:
            return publish(*args, **{**kwargs, "mandatory": True} if self._asks else kwargs)

        return publish_event

    def _on_returned(self, *_: Any) -> None:
        self.is_unread = True

    def _flush_later(self) -> None:
        """Publish in a moment what was sent until then; the loop's thread sets the timer."""
        hub = get_event_loop()
        if hub is None:
            self.flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            hub.call_soon(hub.call_later, FLUSH_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        self._is_flush_due = False
        self.flush()

    def _is_still_blocked(self) -> bool:
        """Whether the broker reads nothing. It announces the end of that on the same connection."""
        if self.is_blocked:
            with suppress(TimeoutError, *self.connection.connection_errors):
                self.connection.drain_events(timeout=0)
        return self.is_blocked

    def _on_blocked(self, _: str) -> None:
        self.is_blocked = True
        logger.warning("Broker blocked; dropping events until it accepts messages")

    def _on_unblocked(self) -> None:
        self.is_blocked = False
        logger.info("Broker accepts messages again")


class Events(CeleryEvents):
    """Celery's, with this dispatcher."""

    dispatcher_cls = "ami.celery.events:EventDispatcher"
