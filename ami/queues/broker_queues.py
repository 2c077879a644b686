"""The queues on the broker, not ours alone, and the bindings of one, where the broker lists them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import NotFound
from kombu import Connection

from ami.celery.broker_kind import kind_of
from ami.celery.declaration import depth, routing_keys
from ami.queues.management_api import ManagementApi, ManagementUnavailable
from ami.topology import broker
from ami.topology.table import FALLBACK
from ami.topology.topology import Topology

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


@dataclass(frozen=True)
class LostBinding:
    """A binding without which messages of an existing queue go to `broker.UNROUTED`.

    ``source`` is the exchange: that of the topology, or the delay exchange in front of it.
    """

    queue: str
    source: str


def lost_bindings(topology: Topology, api: ManagementApi) -> list[LostBinding]:
    """Return the bindings that queues of the topology have lost; a queue whose keys a rollback took has not.

    Raises:
        ManagementUnavailable: the management API does not answer.
    """
    # A queue of another application in the place of ours is named by the rollout.
    there = {queue["name"] for queue in api.queues() if queue["arguments"].items() >= broker.QUORUM.items()}
    routed = topology.queues if topology.routing == "split" else (FALLBACK,)
    names = ("source", "destination_type", "destination", "routing_key")
    bound = {tuple(each[name] for name in names) for each in api.all_bindings()}
    found = []
    for queue in (each for each in routed if each in there):
        if (broker.DELAYED_DELIVERY_EXCHANGE, "exchange", broker.EXCHANGE_NAME, f"#.{queue}") not in bound:
            found.append(LostBinding(queue, broker.DELAYED_DELIVERY_EXCHANGE))
        for key in routing_keys(queue):
            if not any((broker.EXCHANGE_NAME, "queue", holder, key) in bound for holder in (queue, FALLBACK)):
                found.append(LostBinding(queue, broker.EXCHANGE_NAME))
                break
    return found


def unbound(topology: Topology, connection: Connection, management_url: str) -> set[str]:
    """Return the queues that have lost a binding, as far as the broker tells."""
    if not kind_of(connection).is_managed:
        return set()
    try:
        found = lost_bindings(topology, ManagementApi(management_url, connection.virtual_host))
    except ManagementUnavailable:
        return set()
    return {lost.queue for lost in found}


def _is_foreign(name: str) -> bool:
    return name.startswith(FOREIGN) or name.endswith(FOREIGN_SUFFIXES)
