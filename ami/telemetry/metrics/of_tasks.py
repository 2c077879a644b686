"""How long tasks waited and ran and how they ended, by task and queue: a bounded number of both."""

from collections.abc import Iterator
from functools import cache
from operator import attrgetter

from celery import current_app
from prometheus_client.metrics_core import Metric as Family

from ami.celery.task_times import BOUNDS
from ami.queues.tasks import load_tasks
from ami.telemetry import histograms
from ami.telemetry.histograms import RUN, WAIT, Histogram, Outcomes
from ami.telemetry.metrics.families import counter, histogram
from ami.topology.monitoring import metrics
from ami.topology.monitoring.metrics import OTHER
from ami.topology.topology import Topology

OUTCOMES = (
    (metrics.STARTED, attrgetter("started")),
    (metrics.SUCCEEDED, attrgetter("succeeded")),
    (metrics.FAILED, attrgetter("failed")),
    (metrics.RETRIED, attrgetter("retried")),
)
Key = tuple[str, str]


@cache
def _registered() -> frozenset[str]:
    """Return the names of the tasks that were registered when the process was first asked."""
    load_tasks()
    return frozenset(current_app.tasks)


def families(topology: Topology) -> Iterator[Family]:
    """Yield what has been counted since the first sample; one statement."""
    counted, ended = histograms.read()
    labels = _Labels(topology)
    outcomes: dict[Key, Outcomes] = {}
    for (queue, task), each in ended.items():
        key = labels.of(queue, task)
        outcomes[key] = _both(outcomes[key], each) if key in outcomes else each
    for metric, value in OUTCOMES:
        yield counter(metric, [(key, value(each)) for key, each in outcomes.items()])
    for metric, kind in ((metrics.RUNTIME, RUN), (metrics.WAIT, WAIT)):
        found = _merged([each for each in counted if each.kind == kind], labels)
        yield histogram(metric, BOUNDS, [(key, *each) for key, each in found.items()])


class _Labels:
    """Names that are labels: registered tasks and those that a row names, and the queues of the table.

    A name that anybody may have published is none.
    """

    def __init__(self, topology: Topology) -> None:
        self._tasks = _registered().union(task for row in topology.workloads for task in row.tasks if "*" not in task)
        self._queues = frozenset(topology.queues)

    def of(self, queue: str, task: str) -> Key:
        return task if task in self._tasks else OTHER, queue if queue in self._queues else OTHER


def _both(one: Outcomes, other: Outcomes) -> Outcomes:
    names = ("started", "succeeded", "failed", "retried")
    return Outcomes(*(getattr(one, name) + getattr(other, name) for name in names))


def _merged(counted: list[Histogram], labels: _Labels) -> dict[Key, tuple[tuple[int, ...], float]]:
    """Return (cumulative counts, sum of seconds) by the labels."""
    found: dict[Key, tuple[tuple[int, ...], float]] = {}
    for each in counted:
        key = labels.of(each.queue, each.task)
        counts, seconds = found.get(key, ((0,) * len(each.cumulative), 0.0))
        sums = tuple(one + other for one, other in zip(counts, each.cumulative, strict=True))
        found[key] = sums, seconds + each.sum_seconds
    return found
