"""The producer of everything this application publishes: bounded waits for confirmations, the broker's priorities."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from kombu import Producer
from kombu.exceptions import OperationalError

from ami.celery import priority, publish_bounds, staged_calls
from ami.celery.broker_kind import kind_of
from ami.celery.message_guard import GuardedConsumer
from ami.governor.consumer_class import SlotAMQP

#: A publisher waits this long for the broker's confirmation, then raises (incidents 7 and 13).
CONFIRM_TIMEOUT_SECONDS = 10.0


class Unconfirmed(OperationalError):
    """The broker did not confirm the message in time. It may have it all the same.

    A broker that is short of disk or memory confirms nothing until that is over, so the publish is not retried: the
    retry would wait as long again.
    """


class ConfirmedProducer(Producer):
    """Waits a bounded time for each confirmation, then drops the connection with the message.

    Closing the connection in order would wait for the same broker, without end. What kombu and Celery publish with no
    limit of their own (``celery inspect``) has the same one.
    """

    def publish(self, *args: Any, confirm_timeout: float | None = None, **kwargs: Any) -> Any:
        """Publish; see ``kombu.Producer.publish``.

        Raises:
            Unconfirmed: the broker did not confirm the message within ``confirm_timeout`` seconds.
        """
        if confirm_timeout is None and kind_of(self.connection).confirms:
            confirm_timeout = CONFIRM_TIMEOUT_SECONDS
        return super().publish(*args, confirm_timeout=confirm_timeout, **kwargs)

    def _publish(self, body: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
        connection, _ = self.connection, self.channel  # To connect may take too long as well; that is tried again.
        level = _level(connection, given, headers=args[2]) if given else priority.NORMAL
        try:
            return super()._publish(body, level, *args, **kwargs)
        except TimeoutError as error:
            drop(connection)
            raise Unconfirmed("The broker did not confirm the message in time; it may have it all the same.") from error


def _level(connection: Any, given: Any, headers: Mapping[str, Any]) -> int:
    level = priority.level(connection, given)
    if why := priority.why_ignored(connection):
        priority.warn_once(why, headers.get("task"))
    return level


def drop(connection: Any) -> None:
    """Close a connection without waiting: a broker may not answer what closes it in order, or ends TLS."""
    if kind_of(connection).confirms and connection.connected:
        with suppress(OSError):
            connection.connection.sock.settimeout(0)
    connection.collect()


@contextmanager
def answering(connection: Any, seconds: float) -> Iterator[Any]:
    """Give the channel of a connection of the pool, whatever state another user left it in; each answer has so long.

    An error drops the connection: the pool would close it in order, which waits for the same broker.
    """
    connection.ensure_connection(max_retries=1, interval_start=0)
    link, is_bounded = connection.connection, kind_of(connection).confirms
    try:
        with link.transport.having_timeout(seconds) if is_bounded else nullcontext():
            yield connection.default_channel
    except BaseException:
        drop(connection)
        raise


class AntennaAMQP(SlotAMQP):
    """Celery's queues with this producer, and with task consumers that are guarded and that the governor can manage."""

    Producer = ConfirmedProducer
    Consumer = GuardedConsumer

    def as_task_v2(self, *args: Any, **options: Any) -> Any:
        """Return a task's message; see ``celery.app.amqp.AMQP.as_task_v2``.

        Raises:
            publish_bounds.MessageRefused: workers would bury it.
        """
        message = super().as_task_v2(*args, **options)
        if not staged_calls.is_dispatching():  # Else it was checked when its call was staged.
            headers = {**message.headers, **(options.get("headers") or {})}
            publish_bounds.check(message.headers["task"], headers, message.body, options)
        return message

    @property
    def producer_pool(self) -> Any:
        """Celery's pool, which would make kombu's own producers."""
        pool = super().producer_pool
        pool.Producer = self.Producer
        return pool
