"""Queues of a broker without a server on Flower's Broker page: Flower knows RabbitMQ's and Redis's alone."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from amqp.exceptions import NotFound
from kombu import Connection

from ami.celery.broker_kind import kind_of
from ami.celery.declaration import depth


class StoredQueues:
    """What Flower asks for a broker's queues."""

    def __init__(self, broker_url: str) -> None:
        self._url = broker_url

    async def queues(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return the named queues that exist, in the form of RabbitMQ's management API. Raises StorageError."""
        return await asyncio.to_thread(self._read, sorted(names))

    def _read(self, names: list[str]) -> list[dict[str, Any]]:
        found = []
        with Connection(self._url) as connection, connection.channel() as channel:
            for name in names:
                with suppress(NotFound):
                    ready, consumers = depth(channel, name)
                    store = connection.transport.broker.store(name)
                    with store.lock:
                        unacked = len(store.look().leased)
                    found.append(
                        {
                            "name": name,
                            "messages": ready + unacked,
                            "messages_ready": ready,
                            "messages_unacknowledged": unacked,
                            "consumers": consumers,
                        }
                    )
        return found


def show() -> None:
    """Let Flower's Broker page show them."""
    from flower.utils.broker import Broker

    known = Broker.__new__

    def broker_of(cls: Any, broker_url: str, *args: Any, **kwargs: Any) -> Any:
        with Connection(broker_url) as connection:
            is_stored = kind_of(connection).lists
        return StoredQueues(broker_url) if is_stored else known(cls, broker_url, *args, **kwargs)

    Broker.__new__ = broker_of
