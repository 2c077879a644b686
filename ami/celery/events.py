"""A worker's events: nothing waits for the broker to take them, and they are dropped while it takes none."""

from contextlib import suppress
from typing import Any

from celery.app.events import Events as CeleryEvents
from celery.events.dispatcher import EventDispatcher as CeleryEventDispatcher
from celery.utils.log import get_logger
from kombu.connection import PooledConnection

from ami import celery_internals
from ami.celery.broker_kind import kind_of

logger = get_logger(__name__)


class EventDispatcher(CeleryEventDispatcher):
    """Publishes without waiting for confirmations on a connection of its own, which a worker's has.

    A worker sends events from its loop. While RabbitMQ is short of disk or memory it confirms nothing and reads nothing
    from who publishes: waiting for either would stop the loop, and with it all work (incident 7). Under gevent the loop
    would read the confirmation itself, and the greenlet that waits for it would wait for ever.

    A pooled connection is left as it is: tasks are published on it.
    """

    is_blocked = False

    def enable(self) -> None:
        """Start to send; see Celery."""
        super().enable()
        connection = self.connection
        if connection and not isinstance(connection, PooledConnection) and kind_of(connection).confirms:
            channel = connection.default_channel
            channel.basic_publish = celery_internals.publish_unconfirmed(channel)
            connection.connection.on_blocked = self._on_blocked
            connection.connection.on_unblocked = self._on_unblocked

    def let_go(self) -> None:
        """Drop the connection while the broker does not read it: to close it in order would wait for that."""
        if self._hears_blocked():
            self.connection.collect()

    def _publish(self, event: Any, producer: Any, *args: Any, **kwargs: Any) -> None:
        if not self._hears_blocked():
            super()._publish(event, producer, *args, **kwargs)

    def _hears_blocked(self) -> bool:
        """Whether the broker reads nothing; it says so, and when that is over, on the same connection."""
        if self.is_blocked:
            with suppress(TimeoutError, *self.connection.connection_errors):
                self.connection.drain_events(timeout=0)
        return self.is_blocked

    def _on_blocked(self, _: str) -> None:
        self.is_blocked = True
        logger.warning("The broker takes no messages; events are dropped until it does.")

    def _on_unblocked(self) -> None:
        self.is_blocked = False
        logger.info("The broker takes messages again.")


class Events(CeleryEvents):
    """Celery's, with this dispatcher."""

    dispatcher_cls = "ami.celery.events:EventDispatcher"
