"""Probes a service's URL in its own protocol, within a deadline."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import amqp
import nats.errors
import nats.js.errors
import psycopg
import redis
from kombu.utils.url import parse_url
from nats.aio.client import Client

from provision.kind import Unavailable

DEADLINE_SECONDS = 3.0
OLDEST_RABBITMQ = (3, 10)  # dead letters at least once
OLDEST_POSTGRES = 14  # Django 5.2


def where(url: str) -> str:
    """A URL's host and port, or a socket's path; never its user or password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "an unreadable URL"
    return f"{parts.hostname or parts.path or '?'}:{port}" if port else str(parts.hostname or parts.path or "?")


def reason(error: BaseException) -> str:
    """Why a connection failed, without any part of the URL."""
    if isinstance(error, TimeoutError | socket.timeout):
        return f"no answer within {DEADLINE_SECONDS:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "unknown host"
    for inner in (error.__cause__, error.__context__):
        if isinstance(inner, OSError):
            return reason(inner)
    text = str(error).lower()
    for sign, words in (
        ("refused", "connection refused"),
        ("authoriz", "login refused"),
        ("authenticat", "login refused"),
        ("password", "login refused"),
        ("noauth", "login refused"),
        ("timeout", f"no answer within {DEADLINE_SECONDS:g} s"),
        ("timed out", f"no answer within {DEADLINE_SECONDS:g} s"),
    ):
        if sign in text:
            return words
    return f"{type(error).__name__} ({type(error).__module__.partition('.')[0]})"


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Turn any exception of a client library into `Unavailable` with its `reason`."""
    try:
        yield
    except Unavailable:
        raise
    except Exception as error:
        raise Unavailable(reason(error)) from None


def rabbitmq(url: str, seconds: float = DEADLINE_SECONDS) -> str:
    """Log in over AMQP; return the version. Raises `Unavailable`: refused, login, virtual host, too old, scheme."""
    if not url.startswith(("amqp://", "amqps://", "pyamqp://")):
        raise Unavailable("not an amqp:// URL")
    with translated_errors():
        parts: dict[str, Any] = parse_url(url)
        connection = amqp.Connection(
            f"{parts['hostname']}:{parts['port'] or 5672}",
            userid=parts["userid"] or "guest",
            password=parts["password"] or "guest",
            virtual_host=(parts["virtual_host"] or "/") if parts["virtual_host"] != "//" else "/",
            ssl=url.startswith("amqps"),
            connect_timeout=seconds,
            read_timeout=seconds,
            write_timeout=seconds,
        )
        try:
            connection.connect()
            properties: dict[str, Any] = vars(connection)["server_properties"]
        except amqp.exceptions.AccessRefused:
            raise Unavailable("login refused") from None
        except amqp.exceptions.NotAllowed:
            raise Unavailable("no access to the virtual host") from None
        finally:
            with contextlib.suppress(Exception):
                connection.close()
    version = str(properties.get("version", "0"))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_RABBITMQ:
        raise Unavailable(f"RabbitMQ {version}; 3.10 or newer is needed")
    return f"RabbitMQ {version}"


def management(url: str, seconds: float = DEADLINE_SECONDS) -> str:
    """Read /api/overview of the plugin at http://user:password@host:port. Raises `Unavailable`."""
    with translated_errors():
        parts = urlsplit(url)
        request = urllib.request.Request(f"{parts.scheme}://{parts.hostname}:{parts.port}/api/overview")  # noqa: S310
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
        request.add_header("Authorization", "Basic " + base64.b64encode(login).decode())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=seconds) as answer:
            return f"management {json.load(answer)['management_version']}"


def management_beside(url: str) -> str | None:
    """The management URL beside a RabbitMQ on its default port, if it accepts the same login."""
    parts: dict[str, Any] = parse_url(url)
    if (parts["port"] or 5672) != 5672:
        return None
    login = f"{quote(parts['userid'] or 'guest', safe='')}:{quote(parts['password'] or 'guest', safe='')}"
    beside = f"http://{login}@{parts['hostname']}:15672"
    try:
        management(beside, 1.0)
    except Unavailable:
        return None
    return beside


def redis_server(url: str, seconds: float = DEADLINE_SECONDS) -> str:
    """PING; return the version. Raises `Unavailable`."""
    with (
        translated_errors(),
        redis.Redis.from_url(url, socket_connect_timeout=seconds, socket_timeout=seconds) as client,
    ):
        client.ping()
        info: dict[str, Any] = client.info("server")
        return f"Redis {info['redis_version']}"


def postgres(url: str, seconds: float = DEADLINE_SECONDS) -> str:
    """SELECT 1; return the version. Raises `Unavailable`: refused, login, no such database, too old."""
    if not url.startswith(("postgres://", "postgresql://")):
        raise Unavailable("not a postgres:// URL")
    # libpq takes no connect_timeout below 2 s, and counts it once per address.
    with translated_errors():
        try:
            with psycopg.connect(url, connect_timeout=max(2, round(seconds)), autocommit=True) as connection:
                connection.execute("SELECT 1")
                number = connection.info.server_version
        except psycopg.OperationalError as error:
            text = str(error)
            if "does not exist" in text:
                raise Unavailable("no such database or role") from None
            raise
    if number // 10000 < OLDEST_POSTGRES:
        raise Unavailable(f"PostgreSQL {number // 10000}; {OLDEST_POSTGRES} or newer is needed")
    return f"PostgreSQL {number // 10000}.{number % 10000}"


async def ask_nats(url: str, seconds: float) -> str:
    """The version, if JetStream answers. Raises `Unavailable` without it."""

    async def ignore(_: Exception) -> None:
        """The library would print the error, too."""

    # The client retries a refused first connection, and its error does not say that it was refused.
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port or 4222)
    writer.close()
    client = Client()
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    try:
        await client.connect(url, connect_timeout=max(1, round(seconds)), allow_reconnect=False, error_cb=ignore)
        await client.jetstream(timeout=seconds).account_info()
        version = client.connected_server_version
        return f"NATS {version.major}.{version.minor}.{version.patch} with JetStream"
    except (
        nats.js.errors.ServiceUnavailableError,
        nats.errors.NoRespondersError,
        nats.js.errors.NotFoundError,
    ):
        raise Unavailable("it runs without JetStream") from None
    finally:
        await client.close()


def nats_server(url: str, seconds: float = DEADLINE_SECONDS) -> str:
    """Connect and read JetStream's account; return the version. Raises `Unavailable`: refused, login, no JetStream."""
    with translated_errors():
        return asyncio.run(asyncio.wait_for(ask_nats(url, seconds), seconds))
