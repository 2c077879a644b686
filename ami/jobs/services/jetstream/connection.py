"""The NATS connection of a process, on an event loop in a background thread, for synchronous code."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar
from urllib.parse import urlsplit

import nats
import nats.errors
from django.conf import settings
from nats.aio.client import Client
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from ami.celery import outages
from ami.jobs.errors import NatsUnavailable
from ami.queues.connection_reasons import reason

logger = logging.getLogger(__name__)
T = TypeVar("T")

CONNECT_SECONDS = 5.0
OPERATION_SECONDS = 10.0
BREAKER_SECONDS = 2.0
"""Circuit breaker: after a failure, calls fail immediately for this long (incident 20)."""

Operation = Callable[[Client, JetStreamContext], Awaitable[T]]


class Connection:
    """The connection of one process, made on first use and again by the next call after it was lost."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._client: Client | None = None
        self._connecting: asyncio.Lock | None = None
        self._open_until = 0.0
        self._thread = threading.Thread(target=self._loop.run_forever, name="nats", daemon=True)
        self._thread.start()

    def call(self, operation: Operation[T], seconds: float) -> T:
        """Run ``operation`` on the loop and wait for it.

        Raises:
            NatsUnavailable: no answer within the deadline, no connection, or a failure less than two seconds ago.
            NotFoundError: the stream or consumer does not exist.
        """
        if time.monotonic() < self._open_until:
            raise NatsUnavailable(f"NATS at {_where()} failed a moment ago.")
        future = asyncio.run_coroutine_threadsafe(self._run(operation, seconds), self._loop)
        try:
            found = future.result(timeout=CONNECT_SECONDS + seconds + 1)
            outages.answered(outages.NATS, is_sure=True)
            return found
        except (NotFoundError, NatsUnavailable):
            raise
        except (OSError, TimeoutError, FutureTimeout, nats.errors.Error, APIError) as error:
            future.cancel()
            self._open_until = time.monotonic() + BREAKER_SECONDS
            raise NatsUnavailable(f"NATS at {_where()} is unreachable: {reason(error)}.") from error

    async def _run(self, operation: Operation[T], seconds: float) -> T:
        client = await self._connected()
        return await asyncio.wait_for(operation(client, client.jetstream(timeout=seconds)), seconds)

    async def _connected(self) -> Client:
        self._connecting = self._connecting or asyncio.Lock()
        async with self._connecting:
            if self._client is None or not self._client.is_connected:
                await _close_quietly(self._client)
                self._client = await asyncio.wait_for(_connect(), CONNECT_SECONDS)
            return self._client

    def close(self) -> None:
        """Close the connection and end the thread; for tests and at process exit."""
        future = asyncio.run_coroutine_threadsafe(_close_quietly(self._client), self._loop)
        future.result(timeout=CONNECT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=CONNECT_SECONDS)
        self._loop.close()


async def _connect() -> Client:
    if not settings.NATS_URL:
        raise OSError("NATS_URL is not set")
    return await nats.connect(
        settings.NATS_URL,
        name=f"antenna-{os.getpid()}",
        connect_timeout=int(CONNECT_SECONDS),
        # The library sets no keep-alive on its sockets, and its own pings come every two minutes (incident 5).
        ping_interval=settings.ANTENNA_KEEPALIVE_SECONDS,
        allow_reconnect=False,
        max_reconnect_attempts=0,
        error_cb=_report,
    )


async def _report(error: Exception) -> None:
    logger.debug("NATS: %r", error)


async def _close_quietly(client: Client | None) -> None:
    if client is None:
        return
    try:
        await client.close()
    except Exception as error:
        # The connection is already broken; an error while closing it does not matter.
        logger.debug("Closing a lost NATS connection failed: %r", error)


def _where() -> str:
    parts = urlsplit(settings.NATS_URL)
    return f"{parts.hostname or '(NATS_URL is not set)'}:{parts.port or 4222}"


_connection: Connection | None = None
_guard = threading.Lock()


def call(
    operation: Callable[[Client, JetStreamContext], Coroutine[Any, Any, T]], seconds: float = OPERATION_SECONDS
) -> T:
    """Run one operation on this process's connection; a forked child makes its own. See `Connection.call`."""
    global _connection
    with _guard:
        if _connection is None:
            _connection = Connection()
        connection = _connection
    return connection.call(operation, seconds)


def close() -> None:
    """Close this process's connection, if it has one."""
    global _connection
    with _guard:
        connection, _connection = _connection, None
    if connection is not None:
        connection.close()


_of_parents: list[Connection] = []


def _forget_parents() -> None:
    """Give a forked child a new lock, which no thread of the parent can hold, and no connection.

    The parent's connection is kept referenced and never used: closing it in the child would close it in the parent,
    and its thread does not exist in the child.
    """
    global _connection, _guard
    _guard = threading.Lock()
    if _connection is not None:
        _of_parents.append(_connection)
        _connection = None


os.register_at_fork(after_in_child=_forget_parents)
