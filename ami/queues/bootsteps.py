"""Worker bootsteps: refuse what cannot work, declare the topology before consuming, and tell its fingerprint."""

from typing import Any

from celery import bootsteps
from celery.concurrency.prefork import TaskPool
from celery.worker.consumer import Connection, Events, Tasks
from celery.worker.consumer.delayed_delivery import DelayedDelivery

from ami.queues.broker_kind import kind_of
from ami.queues.declare import declare

PROCESSES_REFUSED = (
    "Configuration refused: the broker {url} is the memory of one process, and the prefork pool has several. Start the "
    "worker with --pool threads or --pool solo, or set CELERY_BROKER_URL to objectstore+file:///path/to/a/folder."
)


class RefuseProcesses(bootsteps.Step):
    """Refuses a pool of processes on a broker in the memory of one: its children would publish where nobody reads."""

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        connection = worker.app.connection_for_read()
        if issubclass(worker.pool_cls, TaskPool) and getattr(connection.transport, "is_one_process", False):
            raise SystemExit(PROCESSES_REFUSED.format(url=connection.as_uri()))


class DeclareTopology(bootsteps.StartStopStep):
    """Declares everything this topology needs, before the first consume and after every reconnect."""

    requires = (Connection,)

    def start(self, consumer: Any) -> None:
        """Declare; a reconnect may have found a broker that lost its definitions."""
        app = consumer.app
        with app.connection_for_write() as connection:
            declare(app.topology, connection, own=app.amqp.queues.consume_from)

    def info(self, consumer: Any) -> dict[str, Any]:
        """What ``celery -A config inspect stats`` shows of it."""
        topology = consumer.app.topology
        return {
            "topology": {
                "fingerprint": topology.fingerprint,
                "routing": topology.routing,
                "queues": list(consumer.app.amqp.queues.consume_from),
            }
        }


class UnconfirmedEvents(bootsteps.StartStopStep):
    """Publishes a gevent worker's events without waiting for the broker's confirmations.

    Celery's loop without a hub reads the events' connection between two drains, beside the greenlet that waits there
    for its confirmation. When the loop reads it, that greenlet waits for ever, and with it everyone who sends an event.
    """

    requires = (Events,)

    def start(self, consumer: Any) -> None:
        """Take confirmations from the new connection's channel, before the first event that waits for one."""
        connection = consumer.event_dispatcher.connection
        if consumer.pool.is_green and connection and kind_of(connection).confirms:
            channel = connection.default_channel
            channel.basic_publish = channel._basic_publish


def install(app: Any) -> None:
    """Add the steps to the worker and to its consumer.

    Celery orders steps by ``requires`` alone and has no "before": its own ``Tasks`` is told to wait for ours. Celery's
    ``DelayedDelivery`` is left out: it would bind every queue of the topology again, also those that a rollback took
    their keys from, and ours has declared the same exchanges.
    """
    DelayedDelivery.include_if = lambda *_: False
    Tasks.requires = (*Tasks.requires, DeclareTopology)
    app.steps["worker"].add(RefuseProcesses)
    app.steps["consumer"].update((DeclareTopology, UnconfirmedEvents))
