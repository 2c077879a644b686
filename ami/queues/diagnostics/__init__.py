"""Findings about the running deployment: one module per source.

``queues``, ``broker``: what the broker says. ``workers``, ``restarts``: what each worker says. ``calls``: calls that
are not sent. ``stranded``: calls that no worker can run. ``redis_servers``: what each Redis says. ``beat``: what beat
left in the database. ``reported``: what workers reported there. ``sources``: what the apps above know. ``look``: one
look at all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import connection as database

from ami.celery.thread_database import database_block
from ami.environment.deferred import deferred
from ami.queues import database_errors, startup
from ami.queues.connection_reasons import READ_ONLY, Unusable
from ami.queues.diagnostics import sources
from ami.queues.diagnostics.finding import BROKER, DATABASE, EXPECTED_AT_START, Finding, gravest_first
from ami.queues.diagnostics.look import Look
from ami.topology.topology import Topology

if TYPE_CHECKING:
    from ami.queues import governors
    from ami.queues.diagnostics import beat, broker, calls, queues, redis_servers, reported, stranded, workers
    from ami.queues.diagnostics.redis_servers import RedisServer
    from ami.queues.overview import WorkerRow
else:
    governors = deferred("ami.queues.governors")
    beat, broker, calls, queues, redis_servers, reported, stranded, workers = (
        deferred(f"ami.queues.diagnostics.{name}")
        for name in ("beat", "broker", "calls", "queues", "redis_servers", "reported", "stranded", "workers")
    )

__all__ = ["Finding", "findings", "gravest_first", "without_broker"]


def findings(
    topology: Topology,
    app: Any,
    management_url: str,
    servers: Iterable[RedisServer] = (),
    *,
    has_database: bool = False,
) -> list[Finding]:
    """Return everything that is wrong, the gravest first; an empty list is a healthy deployment.

    A source that does not answer is an error, and what follows from that is left out; none is raised.
    With ``has_database`` the caller has just written to the database, so that it need not be asked.
    """
    look = Look()
    if not has_database:
        look.add(_asked_database)
    rows = look.read(reported.workers, DATABASE)
    look.add(partial(_of_broker, look, rows, topology, app, management_url))
    look.add(lambda: redis_servers.looked_at(_not_asked(look, servers)))
    return _looked(look, rows, topology)


def without_broker(topology: Topology) -> list[Finding]:
    """Return what is wrong as far as the broker need not be asked."""
    look = Look()
    return _looked(look, look.read(reported.workers), topology)


def _looked(look: Look, rows: Sequence[WorkerRow] | None, topology: Topology) -> list[Finding]:
    """Return the findings, with what needs no broker, the gravest first."""
    look.add(beat.findings, DATABASE)
    if rows is not None:
        look.add(lambda: _reported(topology, rows, has_broker=BROKER not in look.away), DATABASE)
    look.add(lambda: sources.findings(look.away))
    missing = [each for each in look.found if each.name in EXPECTED_AT_START and each.level == "error"]
    is_starting = bool(missing) and look.read(_is_starting, DATABASE)
    found = look.findings()
    if is_starting:
        found = [_coming(each) if each in missing else each for each in found]
    return gravest_first(found)


def _coming(missing: Finding) -> Finding:
    return replace(missing, level="starting", sentence=f"Starting: {missing.sentence}")


def _is_starting() -> bool:
    with database_block():
        return startup.is_starting()


def _asked_database() -> list[Finding]:
    """Return whether the database takes writes. Raises django.db.Error."""
    with database_block(), database.cursor() as cursor:
        is_postgres = database.vendor == "postgresql"
        cursor.execute("SELECT current_setting('transaction_read_only')" if is_postgres else "SELECT 'off'")
        is_read_only = cursor.fetchone() == ("on",)
    sentence = database_errors.sentence(Unusable(READ_ONLY))
    return [Finding("error", "database", sentence)] if is_read_only else []


def _of_broker(
    look: Look, rows: Sequence[WorkerRow] | None, topology: Topology, app: Any, management_url: str
) -> list[Finding]:
    """Ask what needs the broker, over one connection. Raises what its libraries raise."""
    with app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=1, timeout=5)
        answers, of_workers = workers.answers(topology, app)
        known = governors.workers(answers)
        look.add(lambda: queues.consumed(topology, connection, known, rows), BROKER)
        look.add(lambda: of_workers)
        look.add(lambda: stranded.findings(app, answers), DATABASE, BROKER)
        look.add(lambda: queues.given_up(topology, connection), DATABASE, BROKER)
        look.add(lambda: broker.managed(topology, management_url, connection), BROKER)
    return []


def _not_asked(look: Look, servers: Iterable[RedisServer]) -> Iterable[RedisServer]:
    """Return the servers that have not failed as the broker."""
    return [each for each in servers if not (BROKER in look.away and redis_servers.MESSAGES in each.keeps)]


def _reported(topology: Topology, rows: Sequence[WorkerRow], *, has_broker: bool) -> list[Finding]:
    with database_block():
        return [*reported.findings(topology, rows, has_broker=has_broker), *calls.findings()]
