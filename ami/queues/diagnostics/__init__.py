"""Findings about the running deployment: one module per source.

``queues``, ``broker``: what the broker says. ``workers``, ``restarts``: what each worker says. ``calls``: calls that
are not sent. ``stranded``: calls that no worker can run. ``redis_servers``: what each Redis says. ``beat``: what beat
left in the database. ``reported``: what workers reported there. ``sources``: what the apps above know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError

from ami.celery.thread_database import database_block
from ami.environment.deferred import deferred
from ami.queues.diagnostics import sources
from ami.queues.diagnostics.finding import Finding
from ami.topology.topology import Topology
from ami.transports.objectstore.storage.errors import UnfitStorageError

if TYPE_CHECKING:
    from ami.queues import governors
    from ami.queues.diagnostics import beat, broker, calls, queues, redis_servers, reported, stranded, workers
    from ami.queues.diagnostics.redis_servers import RedisServer
else:
    governors = deferred("ami.queues.governors")
    beat, broker, calls, queues, redis_servers, reported, stranded, workers = (
        deferred(f"ami.queues.diagnostics.{name}")
        for name in ("beat", "broker", "calls", "queues", "redis_servers", "reported", "stranded", "workers")
    )

__all__ = ["Finding", "findings", "without_broker"]


def findings(topology: Topology, app: Any, management_url: str, servers: Iterable[RedisServer] = ()) -> list[Finding]:
    """Return everything that is wrong, the gravest first; an empty list is a healthy deployment.

    Raises:
        kombu.exceptions.OperationalError: the broker itself does not answer.
    """
    with app.connection_for_read() as connection:
        try:
            connection.ensure_connection(max_retries=1, timeout=5)
        except UnfitStorageError as error:
            return _sorted([Finding("error", "storage", f"{error}."), *without_broker(topology)])
        answers, of_workers = workers.answers(topology, app)
        found = [
            *queues.consumed(topology, connection, governors.workers(answers)),
            *of_workers,
            *stranded.findings(app, answers),
            *queues.given_up(topology, connection),
            *broker.managed(topology, management_url, connection),
            *redis_servers.looked_at(servers),
            *without_broker(topology),
        ]
    return _sorted(found)


def without_broker(topology: Topology) -> list[Finding]:
    """Return what is wrong as far as the broker need not be asked."""
    return _sorted([*beat.findings(), *_reported(topology), *sources.findings()])


def _reported(topology: Topology) -> list[Finding]:
    try:
        with database_block():
            return [*reported.findings(topology), *calls.findings()]
    except DatabaseError as error:
        why = str(error).partition("\n")[0]
        return [Finding("unseen", "database", f"The workers' rows were not read: {why}; correct DATABASE_URL.")]


def _sorted(found: list[Finding]) -> list[Finding]:
    order = {"error": 0, "warning": 1, "unseen": 2}
    return sorted(found, key=lambda finding: order[finding.level])
