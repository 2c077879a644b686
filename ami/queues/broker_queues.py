"""The queues on the broker, not ours alone, and the bindings of one, where the broker lists them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import NotFound
from kombu import Connection

from ami.celery.broker_kind import kind_of
from ami.celery.declaration import depth
from ami.queues.management_api import ManagementApi, ManagementUnavailable
from ami.topology import broker

#: Queues of others that may hold messages: Celery's remote control and events, kombu's delay queues.
FOREIGN = ("celeryev.", "celery_delayed_", "amq.gen-")
FOREIGN_SUFFIXES = (".pidbox",)


class BindingsUnknown(Exception):
    """The bindings cannot be read; the text says why."""


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


def bound_keys(connection: Connection, management_url: str, queue: str) -> set[str]:
    """Return the routing keys that bind an existing queue to the exchange of the topology.

    Raises:
        BindingsUnknown: the broker lists none, or its management API does not answer.
    """
    kind = kind_of(connection)
    if kind.is_managed:
        try:
            bindings = ManagementApi(management_url, connection.virtual_host).bindings(queue)
        except ManagementUnavailable as error:
            raise BindingsUnknown(str(error)) from error
        return {item["routing_key"] for item in bindings if item["source"] == broker.EXCHANGE_NAME}
    if not kind.lists:
        raise BindingsUnknown("this broker does not list its bindings")
    bound = connection.transport.broker.declarations.current(fresh=True).bindings
    return {key for source, name, key in bound if (source, name) == (broker.EXCHANGE_NAME, queue)}


def _is_foreign(name: str) -> bool:
    return name.startswith(FOREIGN) or name.endswith(FOREIGN_SUFFIXES)
