"""The demo's brokers and services: files only, the real services, or a broker given by URL."""

from __future__ import annotations

import argparse
import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from kombu.transport import TRANSPORT_ALIASES

from ami import transports
from ami.environment.errors import did_you_mean
from ami.transports.objectstore.broker.address import Address
from demo.environment import broker_in_use, fresh_database, purge
from provision import services, urls
from provision.steps import SKIP_VARIABLE

EMBEDDED, RABBITMQ = "embedded", "rabbitmq"
CHOICES = f"{EMBEDDED}, {RABBITMQ}, or a URL like objectstore+file:///var/lib/antenna/broker"
IN_MEMORY = ("memory", "objectstore+memory")

#: The services that may be set beside a broker given by URL: name -> variable.
BESIDE = {"redis": "REDIS_URL", "postgres": "DATABASE_URL", "nats": "NATS_URL"}

#: Skipped steps of `provision`: use only running services; use nothing that needs an administrator.
AT_ITS_URL = "binary,wheel,apt,compose"
NO_INSTALLATION = "url,apt,compose"

Say = Callable[[str], None]
Variables = dict[str, str | None]


class BrokerRefused(Exception):
    """The demo cannot run on that broker; the message has the reason, without the URL's password."""


def leave_the_machine_alone() -> None:
    """Let `provision` install no Debian package, unless the user has said which steps it skips."""
    os.environ.setdefault(SKIP_VARIABLE, "apt")


def broker(value: str) -> str:
    """Return ``value`` if it is a valid broker.

    Raises:
        argparse.ArgumentTypeError: it is not; the message has the choices.
    """
    transports.register()
    if value in (EMBEDDED, RABBITMQ):
        return value
    scheme, separator, _ = value.partition("://")
    if not separator:
        meant = did_you_mean(value, (EMBEDDED, RABBITMQ))
        raise argparse.ArgumentTypeError(f"'{urls.where(value)}' is not a broker; use {CHOICES}.{meant}")
    if scheme.partition("+")[0] not in TRANSPORT_ALIASES:
        meant = did_you_mean(scheme, TRANSPORT_ALIASES)
        raise argparse.ArgumentTypeError(f"{scheme}:// is not a known broker scheme; use {CHOICES}.{meant}")
    if scheme in IN_MEMORY:
        raise argparse.ArgumentTypeError(
            f"{scheme}:// is limited to one process, and the demo has many; use {CHOICES}."
        )
    if scheme.startswith("objectstore+"):
        _refuse_malformed(value.removeprefix("objectstore+"))
    return value


def _refuse_malformed(store: str) -> None:
    try:
        Address.parse(store)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}.") from None


def obtain(choice: str, folder: Path, stack: ExitStack, say: Say) -> Variables:
    """Start the services of ``choice`` until ``stack`` exits; return the variables for the demo's processes.

    A broker that is not the demo's own is purged at the end, so it must be empty at the beginning.

    Raises:
        BrokerRefused: the broker does not answer or is in use.
        provision.kind.NothingFound: another service is not available.
    """
    if choice == RABBITMQ:
        variables = _real_services(stack, say)
    elif choice == EMBEDDED:
        variables = _without_services(folder, stack, say)
    else:
        variables = _at(choice, stack, say)
    variables["DATABASE_URL"] = fresh_database(variables.get("DATABASE_URL") or "", folder)
    _describe(variables, say)
    return variables


def _real_services(stack: ExitStack, say: Say) -> Variables:
    found = stack.enter_context(services.running(say=say))
    if queue := broker_in_use(found["rabbitmq"].url):
        say(f"rabbitmq: '{queue}' of that broker is in use; starting a private one for the demo")
        found |= stack.enter_context(services.running(["rabbitmq"], private=True, say=say))
    stack.callback(purge, found["rabbitmq"].url)
    return services.environment(found)


def _without_services(folder: Path, stack: ExitStack, say: Say) -> Variables:
    return {
        "CELERY_BROKER_URL": f"objectstore+{(folder / 'broker').as_uri()}",
        "RABBITMQ_MANAGEMENT_URL": None,
        "REDIS_URL": None,
        **private_nats(stack, say),
    }


def private_nats(stack: ExitStack, say: Say) -> Variables:
    """Start a NATS that needs no administrator, until ``stack`` exits. Raises `provision.kind.NothingFound`."""
    environ = {**os.environ, SKIP_VARIABLE: f"{os.environ.get(SKIP_VARIABLE, '')},{NO_INSTALLATION}"}
    return services.environment(stack.enter_context(services.running(["nats"], environ=environ, say=say)))


def _at(url: str, stack: ExitStack, say: Say) -> Variables:
    environ = {**os.environ, "CELERY_BROKER_URL": url, SKIP_VARIABLE: AT_ITS_URL}
    beside = [name for name, variable in BESIDE.items() if environ.get(variable) and not _is_sqlite(environ[variable])]
    names = ["rabbitmq", *beside] if url.startswith(("amqp://", "amqps://", "pyamqp://")) else beside
    found = stack.enter_context(services.running(names, environ=environ, say=say))
    _refuse_in_use(url)
    stack.callback(purge, url)
    variables: Variables = {"CELERY_BROKER_URL": url, "RABBITMQ_MANAGEMENT_URL": None, "REDIS_URL": None}
    variables |= services.environment(found)
    return variables if "nats" in found else variables | private_nats(stack, say)


def _refuse_in_use(url: str) -> None:
    try:
        queue = broker_in_use(url)
    except Exception as error:  # each transport raises its own
        raise BrokerRefused(f"nothing usable at {urls.where(url)} ({urls.reason(error)}); use {CHOICES}") from error
    if queue:
        raise BrokerRefused(f"'{queue}' of the broker at {urls.where(url)} is in use; the demo would purge it.")


def _is_sqlite(url: str) -> bool:
    return urlsplit(url).scheme == "sqlite"


def _describe(variables: Variables, say: Say) -> None:
    """Print the broker, the database and the cache."""
    broker, database, redis = (variables[name] or "" for name in ("CELERY_BROKER_URL", "DATABASE_URL", "REDIS_URL"))
    say(f"broker: {urlsplit(broker).scheme} at {urls.where(broker)}")
    if _is_sqlite(database):
        say(f"database: SQLite {sqlite3.sqlite_version} at {urlsplit(database).path.removeprefix('/')}")
    else:
        say(f"database: PostgreSQL at {urls.where(database)}{urlsplit(database).path}")
    say(f"cache and results: {f'Redis at {urls.where(redis)}' if redis else 'in the database'}")
