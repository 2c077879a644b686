"""Findings about the broker: its alarms, its policies, its version, and queues that are not of the topology."""

from collections.abc import Iterator, Mapping

from kombu import Connection

from ami.celery.broker_kind import kind_of
from ami.environment.errors import did_you_mean
from ami.queues import broker_queues
from ami.queues.diagnostics.finding import Finding
from ami.queues.management_api import ManagementApi, ManagementUnavailable
from ami.topology import broker
from ami.topology.topology import Topology


def managed(topology: Topology, url: str, connection: Connection) -> Iterator[Finding]:
    """Findings from the management API, or one saying it was unreachable."""
    if not kind_of(connection).is_managed:
        yield from _listed(topology, broker_queues.stored(connection))
        return
    try:
        api = ManagementApi(url, connection.virtual_host)
        yield from _listed(topology, broker_queues.managed(api))
        yield from _lost_bindings(topology, api)
        yield from _reported(topology, api)
    except ManagementUnavailable as error:
        yield Finding(
            "error" if url else "unseen",
            "management",
            f"Alarms, blocked connections, unknown queues and policies were not checked: {error}.",
        )


def _listed(topology: Topology, queues: Mapping[str, broker_queues.Listed]) -> Iterator[Finding]:
    own = broker.own_queue_names(topology)
    for name, queue in queues.items():
        if name not in own and queue.messages:
            yield Finding(
                "warning",
                "unknown-queue",
                f"{name} holds {queue.messages} messages and is not a queue of the topology."
                f"{did_you_mean(name, topology.queues)}",
                name,
            )
    for expected in broker.task_queues(topology):
        if expected.name in queues and queues[expected.name].arguments != expected.queue_arguments:
            yield Finding(
                "error",
                "arguments",
                f"{expected.name} exists with other arguments than the topology's; a worker would stop with 406. "
                "Drain it, delete it, and declare again.",
                expected.name,
            )


def _lost_bindings(topology: Topology, api: ManagementApi) -> Iterator[Finding]:
    remedy = "run 'manage.py queues declare', then replay what is kept there."
    for lost in broker_queues.lost_bindings(topology, api):
        what = f"{lost.queue} has lost its binding to the exchange {lost.source}: its messages"
        if lost.source == broker.DELAYED_DELIVERY_EXCHANGE:
            what = (
                f"{lost.queue} has lost the binding behind its delay exchange {lost.source}: its countdowns and retries"
            )
        yield Finding("error", "lost-binding", f"{what} end in {broker.UNROUTED}; {remedy}", lost.queue)


def _reported(topology: Topology, api: ManagementApi) -> Iterator[Finding]:
    """Yield alarms, blocked connections, and known faults of this version. Raises ManagementUnavailable."""
    for alarm in api.alarms():
        sentence = f"RabbitMQ has a resource alarm ({alarm}); it blocks every publisher."
        yield Finding("error", "alarm", sentence, str(alarm))
    for name in api.blocked_connections():
        yield Finding("error", "blocked", f"The connection {name} is blocked from publishing.")
    version = api.version()
    yield from _policies(topology, api, version)
    yield from _version(version)


def _policies(topology: Topology, api: ManagementApi, version: tuple[int, ...]) -> Iterator[Finding]:
    held = api.policies()
    stale = [
        policy["name"]
        for policy in broker.policies(topology, version)
        if held.get(policy["name"], {}).get("definition") != policy["definition"]
    ]
    if stale:
        yield Finding("warning", "policies", f"Policies are missing or old: {', '.join(stale)}; run 'queues declare'.")


def _version(version: tuple[int, ...]) -> Iterator[Finding]:
    if version < (3, 10):
        yield Finding(
            "error", "version", "RabbitMQ is older than 3.10: no message TTL and no at-least-once dead letters."
        )
    elif version < (3, 12):
        yield Finding(
            "warning",
            "version",
            f"RabbitMQ {'.'.join(map(str, version))} has no consumer timeout per queue; its own 30 minutes hold, "
            "and every hard time limit is below that.",
        )
