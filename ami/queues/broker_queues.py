"""Every queue on the broker, not ours alone, where the broker lists them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import NotFound
from kombu import Connection

from ami.celery.broker_kind import kind_of
from ami.celery.declaration import depth
from ami.queues.management_api import ManagementApi

#: Queues of others that may hold messages: Celery's remote control and events, kombu's delay queues.
FOREIGN = ("celeryev.", "celery_delayed_", "amq.gen-")
FOREIGN_SUFFIXES = (".pidbox",)


@dataclass(frozen=True)
class Listed:
    """A queue that exists: how many messages it holds, and what it was declared with."""

    messages: int
    arguments: Mapping[str, Any]


def managed(api: ManagementApi) -> dict[str, Listed]:
    """Return RabbitMQ's queues, by name.

    Raises:
        ManagementUnavailable: the management API does not answer.
    """
    queues = {queue["name"]: Listed(queue.get("messages", 0), queue.get("arguments", {})) for queue in api.queues()}
    return {name: queue for name, queue in queues.items() if not _is_foreign(name)}


def stored(connection: Connection) -> dict[str, Listed]:
    """Return the queues of a broker that :func:`kind_of` says lists them itself, by name; else none."""
    if not kind_of(connection).lists:
        return {}
    records = connection.transport.broker.declarations.current(fresh=True).queues
    found = {}
    with connection.channel() as channel:
        for name in (name for name in records if not _is_foreign(name)):
            with suppress(NotFound):  # Deleted meanwhile.
                found[name] = Listed(depth(channel, name)[0], records[name].arguments)
    return found


def _is_foreign(name: str) -> bool:
    return name.startswith(FOREIGN) or name.endswith(FOREIGN_SUFFIXES)
