"""The services that a process may need, and how each is probed."""

import json
import os
import re
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ami.environment.declaration import of
from ami.queues.connection_reasons import ANSWER_SECONDS, LOGIN, Unusable, reason
from config.schema.addresses import Addresses
from config.settings.databases import databases

from . import Need


def rabbitmq(url: str) -> None:
    """Log in to one of the brokers, as Celery will."""
    from kombu import Connection

    timeouts = {"read_timeout": ANSWER_SECONDS, "write_timeout": ANSWER_SECONDS}
    failed: dict[str, None] = {}
    for one in each(url):
        client = Connection(one, connect_timeout=ANSWER_SECONDS, transport_options=timeouts)
        try:
            client.transport.close_connection(client.transport.establish_connection())
        except Exception as error:
            failed[reason(error)] = None
        else:
            return
    raise Unusable(", ".join(failed))


def redis_server(url: str) -> None:
    """PING, with the password."""
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    timeouts = {"socket_connect_timeout": ANSWER_SECONDS, "socket_timeout": ANSWER_SECONDS}
    with Redis.from_url(url, retry=Retry(NoBackoff(), 0), **timeouts) as client:
        client.ping()


def postgres(url: str) -> None:
    """Log in to the database, with what libpq knows of Django's options."""
    import psycopg
    from psycopg.pq import Conninfo

    database = databases(url)["default"]
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    options = {name: value for name, value in database["OPTIONS"].items() if name in known}
    options |= {"dbname": database["NAME"], "host": database["HOST"], "port": database["PORT"] or 5432}
    options |= {"user": database["USER"], "password": database["PASSWORD"], "connect_timeout": int(ANSWER_SECONDS)}
    psycopg.connect(**options).close()


def nats_server(url: str) -> None:
    """Read its greeting and log in; over TLS, which begins after the greeting, only the greeting."""
    parts = urlsplit(url)
    with (
        socket.create_connection((parts.hostname or "", parts.port or 4222), ANSWER_SECONDS) as server,
        server.makefile("rb") as lines,
    ):
        greeting = lines.readline(64 * 1024)
        if not greeting.startswith(b"INFO "):
            raise Unusable("what answers is not NATS")
        if parts.scheme == "tls" or json.loads(greeting[5:]).get("tls_required"):
            return
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        login = {"user": user, "pass": password} if password else {"auth_token": user} if user else {}
        server.sendall(b"CONNECT " + json.dumps({"verbose": False, "pedantic": False, **login}).encode())
        server.sendall(b"\r\nPING\r\n")
        while (line := lines.readline(64 * 1024)) and not line.startswith((b"PONG", b"-ERR")):
            pass
        if not line.startswith(b"PONG"):
            raise Unusable(LOGIN if b"auth" in line.lower() else "it turns the connection away")


def _variable(field: str) -> str:
    return of(Addresses, field).name


class Service(NamedTuple):
    """A row of the table: a name, the variable with its URL, the schemes that need it with their ports, the probe."""

    name: str
    variable: str
    ports: Mapping[str, int]
    probe: Callable[[str], None]


#: A URL of another scheme (a folder, a bucket, SQLite) needs no server.
SERVICES = (
    Service("RabbitMQ", _variable("celery_broker_url"), {"amqp": 5672, "pyamqp": 5672, "amqps": 5671}, rabbitmq),
    Service("Redis", _variable("redis_url"), {"redis": 6379, "rediss": 6379}, redis_server),
    Service("PostgreSQL", _variable("database_url"), {"postgres": 5432, "postgresql": 5432}, postgres),
    Service("NATS", _variable("nats_url"), {"nats": 4222, "tls": 4222}, nats_server),
)


def needs() -> list[Need]:
    """Return the services that the environment names. The settings have been read: files are in it, wrong URLs not."""
    found = [(service, os.environ.get(service.variable, "").strip()) for service in SERVICES]
    return [
        Need(
            service.name,
            f"at {where(url, service.ports)} ({service.variable})",
            asking(partial(service.probe, url)),
        )
        for service, url in found
        if url.partition("://")[0] in service.ports
    ]


def asking(probe: Callable[[], object]) -> Callable[[], str]:
    """Return a function that calls the probe and returns why it failed, or nothing."""

    def ask() -> str:
        try:
            probe()
        except Exception as error:
            return reason(error)
        return ""

    return ask


def where(url: str, ports: Mapping[str, int]) -> str:
    """Return host and port of a URL, of each where it names several, and never its user or password."""
    return " or ".join(_where(one, ports) for one in each(url))


def each(url: str) -> list[str]:
    """Return the URLs of a list like kombu's, parted by semicolons; one in a password parts nothing."""
    return re.split(r";(?=[a-z]+://)", url)


def _where(url: str, ports: Mapping[str, int]) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or ports.get(parts.scheme)
    except ValueError:
        return "an unreadable address"
    return f"{f'[{host}]' if ':' in host else host}:{port}"
