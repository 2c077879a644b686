"""Worker bootsteps: refuse what cannot work, declare the topology before consuming, and report its fingerprint."""

from typing import Any

from celery import bootsteps
from celery.concurrency.prefork import TaskPool
from celery.worker.consumer import Connection, Events, Tasks
from celery.worker.consumer.delayed_delivery import DelayedDelivery

from ami.celery import amqp_properties, control_commands, decompression, outages, pool
from ami.celery.broker_info import MaskBroker
from ami.celery.declaration import declare

PROCESSES_REFUSED = (
    "Configuration refused: the broker {url} is the memory of one process, and the prefork pool has several. Start the "
    "worker with --pool threads or --pool solo, or set CELERY_BROKER_URL to objectstore+file:///path/to/a/folder."
)


class RefuseProcesses(bootsteps.Step):
    """Refuses a pool of processes on a broker in the memory of one: its children would publish without consumers."""

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        connection = worker.app.connection_for_read()
        if issubclass(worker.pool_cls, TaskPool) and getattr(connection.transport, "is_one_process", False):
            raise SystemExit(PROCESSES_REFUSED.format(url=connection.as_uri()))


class OwnQueues(bootsteps.Step):
    """Remembers the queues that the worker was started with: Celery forgets one whose consumer is cancelled."""

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        worker.own_queues = tuple(worker.app.amqp.queues.consume_from)


class DeclareTopology(bootsteps.StartStopStep):
    """Declares everything this topology needs, before the first consume and after every reconnect."""

    requires = (Connection,)

    def start(self, consumer: Any) -> None:
        # A reconnect may have found a broker that lost its definitions.
        app = consumer.app
        with app.connection_for_write() as connection:
            declare(app.topology, connection, own=app.amqp.queues.consume_from)
        outages.answered(outages.BROKER, is_sure=True)

    def info(self, consumer: Any) -> dict[str, Any]:
        """Return what ``celery -A config inspect stats`` shows."""
        topology = consumer.app.topology
        limits = getattr(consumer.controller, "limits", None)
        return {
            "topology": {
                "fingerprint": topology.fingerprint,
                "routing": topology.routing,
                "queues": list(consumer.app.amqp.queues.consume_from),
                "own_queues": list(consumer.controller.own_queues),
            },
            "limits": limits.info() if limits else None,
        }


class CloseEvents(bootsteps.StartStopStep):
    """Publishes the events that wait before Celery closes their connection, or drops it while the broker is blocked."""

    requires = (Events,)

    def stop(self, consumer: Any) -> None:
        if consumer.event_dispatcher:
            consumer.event_dispatcher.before_close()


def install(app: Any) -> None:
    """Add the steps to the worker and to its consumer, and guard this process against what it may receive.

    Celery orders steps by ``requires`` alone and has no "before": its own ``Tasks`` step is made to require ours.
    Celery's ``DelayedDelivery`` is left out: it would bind every queue of the topology again, also those that a
    rollback took their keys from, and ours has declared the same exchanges.
    """
    amqp_properties.install()
    control_commands.install()
    decompression.install()
    pool.install()
    DelayedDelivery.include_if = lambda *_: False
    Tasks.requires = (*Tasks.requires, DeclareTopology)
    app.steps["worker"].update((RefuseProcesses, OwnQueues))
    app.steps["consumer"].update((DeclareTopology, CloseEvents, MaskBroker))
