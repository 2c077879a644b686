"""Findings about the running deployment: one module per source.

``queues``, ``broker``: what the broker says. ``workers``, ``restarts``: what each worker says. ``calls``: calls that
are not sent. ``stranded``: calls that no worker can run. ``redis_servers``: what each Redis says. ``beat``: what beat
left in the database. ``reported``: what workers reported there. ``sources``: what the apps above know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError

from ami.celery.thread_database import database_block
from ami.environment.deferred import deferred
from ami.queues import governors, starting
from ami.queues.diagnostics import beat, broker, calls, queues, reported, sources, stranded, workers
from ami.queues.diagnostics.finding import EXPECTED_AT_START, Finding, gravest_first
from ami.queues.overview import WorkerRow
from ami.topology.topology import Topology

if TYPE_CHECKING:
    from ami.queues.diagnostics import redis_servers
    from ami.queues.diagnostics.redis_servers import RedisServer
else:
    redis_servers = deferred("ami.queues.diagnostics.redis_servers")

__all__ = ["Finding", "findings", "without_broker"]


def findings(topology: Topology, app: Any, management_url: str, servers: Iterable[RedisServer] = ()) -> list[Finding]:
    """Return everything that is wrong, the gravest first; an empty list is a healthy deployment.

    Raises:
        kombu.exceptions.OperationalError: the broker itself does not answer.
    """
    with app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=1, timeout=5)
        answers, of_workers = workers.answers(topology, app)
        rows = reported.workers()
        found = [
            *queues.consumed(topology, connection, governors.workers(answers), rows),
            *of_workers,
            *stranded.findings(app, answers),
            *queues.given_up(topology, connection),
            *broker.managed(topology, management_url, connection),
            *redis_servers.looked_at(servers),
            *_without_broker(topology, rows),
        ]
    return _sorted(found)


def without_broker(topology: Topology) -> list[Finding]:
    """Return what is wrong as far as the broker need not be asked."""
    return _sorted(_without_broker(topology, None))


def _without_broker(topology: Topology, rows: Sequence[WorkerRow] | None) -> list[Finding]:
    return [*beat.findings(), *_reported(topology, rows), *sources.findings()]


def _reported(topology: Topology, rows: Sequence[WorkerRow] | None) -> list[Finding]:
    try:
        with database_block():
            return [*reported.findings(topology, rows), *calls.findings()]
    except DatabaseError as error:
        why = str(error).partition("\n")[0]
        return [Finding("unseen", "database", f"The workers' rows were not read: {why}; correct DATABASE_URL.")]


def _sorted(found: list[Finding]) -> list[Finding]:
    missing = [each for each in found if each.name in EXPECTED_AT_START and each.level == "error"]
    if missing and _is_starting():
        coming = [replace(each, level="starting", sentence=f"Starting: {each.sentence}") for each in missing]
        found = [*(each for each in found if each not in missing), *coming]
    return gravest_first(found)


def _is_starting() -> bool:
    try:
        with database_block():
            return starting.is_starting()
    except DatabaseError:
        return False
