"""Collects every metric of a deployment: one statement for the snapshot, and one each for totals and jobs."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from ami.telemetry import ports
from ami.telemetry.metrics import of_queues, of_tasks, of_workers
from ami.telemetry.metrics.families import gauge
from ami.telemetry.snapshots import shared
from ami.topology.monitoring import metrics
from ami.topology.topology import Topology

#: A scrape takes a new snapshot where the last one is older.
FRESH_SECONDS = 10.0


class DeploymentCollector(Collector):
    """Reads the database when it is scraped: every process of web answers with the same figures.

    Raises:
        django.db.Error: the database did not answer.
    """

    def __init__(self, topology: Topology, version: str) -> None:
        self._topology, self._version = topology, version

    def collect(self) -> Iterator[Family]:
        snapshot = shared.current(FRESH_SECONDS)
        yield from of_queues.families(snapshot)
        yield from of_workers.families(snapshot.workers)
        yield from of_tasks.families(self._topology)
        yield gauge(metrics.JOBS, ports.job_counts().items())
        yield gauge(metrics.BUILD, [((self._version,), 1)])


def registry(topology: Topology, version: str) -> CollectorRegistry:
    """Return a registry of this deployment's metrics alone, without those of the process that answers."""
    found = CollectorRegistry(auto_describe=False)
    found.register(DeploymentCollector(topology, version))
    return found
