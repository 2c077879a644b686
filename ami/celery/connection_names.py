"""Names every connection of a worker after its node and start, so that a dead worker's can be found and closed."""

import secrets
from typing import Any

from celery.concurrency import get_implementation
from celery.concurrency.solo import TaskPool as SoloPool
from celery.signals import worker_init
from django.db import connections

from ami.celery.broker_kind import kind_of
from ami.topology import broker

#: PostgreSQL's limit for ``application_name``.
LONGEST_NAME = 63
#: Longer than any slice of work, and than what one transaction of a task computes.
IDLE_IN_TRANSACTION_SECONDS = 300

_incarnation = ""


def incarnation() -> str:
    """Return the name of this worker's start, ``NODE#8f3a61c09d2e``; its children have it, too. Empty in no worker."""
    return _incarnation


def database_name() -> str:
    """Return the ``application_name`` of this worker's database connections; empty in no worker."""
    return _short(_incarnation) if _incarnation else ""


def _short(name: str) -> str:
    node, _, start = name.rpartition("#")
    return f"{node[: LONGEST_NAME - len(start) - 1]}#{start}"


def install(app: Any) -> None:
    """Name the connections of every worker of ``app`` before it opens the first one."""

    def name(sender: Any = None, **_: Any) -> None:
        global _incarnation
        if sender.app is not app:
            return
        _incarnation = f"{sender.hostname}#{secrets.token_hex(6)}"
        _name_broker_connections(sender)
        _name_database_connections()

    worker_init.connect(name, weak=False, dispatch_uid=f"connection_names.{id(app)}")


def _name_broker_connections(worker: Any) -> None:
    """Set what RabbitMQ shows of each connection, and how soon it misses one.

    A solo worker's loop stands while its task runs: its heartbeat exceeds the hard time limit.
    """
    conf = worker.app.conf
    if not kind_of(worker.app.connection_for_read()).is_managed:
        return
    properties = {"connection_name": _incarnation}
    conf.broker_transport_options = {**(conf.broker_transport_options or {}), "client_properties": properties}
    if issubclass(get_implementation(worker.pool_cls), SoloPool):
        conf.broker_heartbeat = broker.HEARTBEAT_SECONDS + 2 * int(worker.time_limit or 0)


def _name_database_connections() -> None:
    for alias in connections:
        settings = connections.settings[alias]
        if "postgresql" in settings["ENGINE"]:
            options = settings.setdefault("OPTIONS", {})
            options["application_name"] = database_name()
            # A backstop: a process that is frozen inside a transaction, and that nobody ends, keeps its locks so long.
            backstop = f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_SECONDS * 1000}"
            options["options"] = f"{options.get('options', '')} {backstop}".strip()
