"""What each worker reports of itself."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client.metrics_core import Metric as Family

from ami.telemetry.metrics.families import gauge
from ami.telemetry.snapshots.shape import WorkerFigures
from ami.topology.monitoring import metrics
from ami.topology.monitoring.metrics import NODE, Metric

#: So many workers have series; a platform that names each start of a container anew leaves their rows for a while.
MOST = 500
#: The states of a worker that reports and has its broker.
UP = frozenset({"running", "parked", "held"})


def is_up(worker: WorkerFigures) -> bool:
    return worker.state in UP


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


FIGURES: tuple[tuple[Metric, Callable[[WorkerFigures], Any]], ...] = (
    (metrics.WORKER_UP, is_up),
    (metrics.WORKER_ACTIVE, lambda worker: len(worker.running)),
    (metrics.WORKER_PARKED, lambda worker: worker.parked is not None),
    (metrics.WORKER_HELD, lambda worker: worker.held_seconds is not None),
    (metrics.WORKER_MEMORY, lambda worker: worker.memory_used_bytes),
    (metrics.WORKER_LIMIT, lambda worker: worker.memory_limit_bytes),
    (metrics.WORKER_HOLDS_AT, lambda worker: _share(worker.hold_percent)),
    (metrics.WORKER_RELEASES_AT, lambda worker: _share(worker.release_percent)),
    (metrics.WORKER_CHILDREN, lambda worker: worker.children),
)


def families(workers: Sequence[WorkerFigures]) -> Iterator[Family]:
    """Yield the metrics of the workers that have reported last, `MOST` of them."""
    shown = sorted(workers, key=lambda worker: worker.seen_seconds)[:MOST]
    for metric, figure in FIGURES:
        of_service = metric.labels != (NODE,)
        samples = [((each.node, each.service) if of_service else (each.node,), figure(each)) for each in shown]
        yield gauge(metric, samples)
    infos = [((each.node, each.service, each.host, each.version, each.state), 1) for each in shown]
    yield gauge(metrics.WORKER_INFO, infos)
