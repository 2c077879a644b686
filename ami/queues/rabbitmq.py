"""What RabbitMQ's management API shows of a deployment, beyond what AMQP itself tells."""

from collections.abc import Iterator

from ami.queues.finding import Finding
from ami.queues.management_api import ManagementApi
from ami.topology import broker
from ami.topology.topology import Topology


def findings(topology: Topology, api: ManagementApi) -> Iterator[Finding]:
    """Yield alarms, blocked connections, and the known traps of this version.

    Raises:
        ManagementUnavailable: it does not answer.
    """
    for alarm in api.alarms():
        yield Finding("error", "alarm", f"RabbitMQ has a resource alarm ({alarm}); it blocks every publisher.")
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
