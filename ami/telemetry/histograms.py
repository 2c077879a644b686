"""What was counted of every task since the first sample, for counters that only grow."""

from dataclasses import dataclass

from ami.celery import task_times
from ami.celery.task_times import BOUNDS
from ami.telemetry import counts
from ami.telemetry.models import TaskTotal

WAIT, RUN = "wait", "run"


@dataclass(frozen=True)
class Histogram:
    """One of one task of one queue; ``cumulative`` has a count for each of ``bounds`` (seconds) and one for all."""

    queue: str
    task: str
    kind: str
    bounds: tuple[float, ...]
    cumulative: tuple[int, ...]
    sum_seconds: float


@dataclass(frozen=True)
class Outcomes:
    """How many tasks were begun, and how they ended."""

    started: int
    succeeded: int
    failed: int
    retried: int


def read() -> tuple[list[Histogram], dict[tuple[str, str], Outcomes]]:
    """Return the histograms of waits and runs, and how tasks ended by (queue, task); one statement."""
    found: list[Histogram] = []
    outcomes: dict[tuple[str, str], Outcomes] = {}
    for queue, task, each in TaskTotal.objects.order_by("queue", "task").values_list("queue", "task", "counts"):
        if len(each) != task_times.LENGTH:
            continue  # Of a version with other buckets.
        outcomes[queue, task] = Outcomes(*(int(value) for value in each[: task_times.WAIT_SECONDS]))
        waits, runs = counts.waits(each), counts.runs(each)
        found.append(Histogram(queue, task, WAIT, BOUNDS, _cumulative(waits), each[task_times.WAIT_SECONDS]))
        found.append(Histogram(queue, task, RUN, BOUNDS, _cumulative(runs), each[task_times.RUN_SECONDS]))
    return found, outcomes


def _cumulative(buckets: list[float]) -> tuple[int, ...]:
    sums, whole = [], 0
    for count in buckets:
        whole += int(count)
        sums.append(whole)
    return tuple(sums)
