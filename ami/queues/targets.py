"""Finds the queue or the workers that an operator names."""

from dataclasses import dataclass

from ami.environment.errors import did_you_mean
from ami.queues.models import DesiredState, Worker
from ami.queues.refusals import Refused
from ami.topology.topology import Topology

Kind = DesiredState.Kind


@dataclass(frozen=True)
class Target:
    """One queue, or the workers of one service, host or node."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def queue_target(topology: Topology, name: str) -> Target:
    """Return the queue of this name.

    Raises:
        Refused: no workload consumes a queue of this name.
    """
    known = [row.queue for row in topology.workloads]
    if name not in known:
        raise Refused(f"No workload consumes '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}.")
    return Target(Kind.QUEUE, name)


def worker_target(topology: Topology, name: str) -> Target:
    """Return the workers of a node (``ingest@host``), a service or a host, in this order.

    Raises:
        Refused: none of them is known.
    """
    rows = list(Worker.objects.values_list("node", "host"))
    nodes, hosts = [node for node, _ in rows], sorted({host for _, host in rows})
    services = [row.service for row in topology.workloads]
    for kind, names in ((Kind.NODE, nodes), (Kind.SERVICE, services), (Kind.HOST, hosts)):
        if name in names:
            return Target(kind, name)
    known = [*nodes, *services, *hosts]
    raise Refused(
        f"No worker, service or host is called '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}."
    )


def workers_of(target: Target) -> "list[Worker]":
    """Return the rows of the workers that a wish for the target reaches."""
    rows = Worker.objects.order_by("node")
    if target.kind == Kind.QUEUE:
        return [row for row in rows if target.name in row.queues]
    field = {Kind.NODE: "node", Kind.SERVICE: "service", Kind.HOST: "host"}[Kind(target.kind)]
    return list(rows.filter(**{field: target.name}))
