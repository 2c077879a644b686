"""A worker's events, published without waiting for the broker."""

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
    """Publishes without waiting for confirmations where it has a connection of its own, as a worker's has.

    A worker sends events from its loop. While RabbitMQ is short of disk or memory it confirms nothing and reads nothing
    from publishers: waiting for either would stop the loop, and with it all work (incident 7). Under gevent the loop
    would read the confirmation itself, and the greenlet waiting for it would never end.

    A pooled connection is left as it is: tasks are published on it.
    """

    is_blocked = False

    def enable(self) -> None:
        super().enable()
        connection = self.connection
        if connection and not isinstance(connection, PooledConnection) and kind_of(connection).confirms:
            channel = connection.default_channel
            channel.basic_publish = celery_internals.publish_unconfirmed(channel)
            connection.connection.on_blocked = self._on_blocked
            connection.connection.on_unblocked = self._on_unblocked

    def before_close(self) -> None:
        """Publish what waits; drop the connection if the broker does not read: closing it in order would wait."""
        if self._is_still_blocked():
            self.connection.collect()
        else:
            self.flush()

    def _publish(self, *args: Any, **kwargs: Any) -> None:
        if not self._is_still_blocked():
            super()._publish(*args, **kwargs)

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
