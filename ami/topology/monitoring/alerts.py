"""Renders Prometheus's alert rules: one for each promise of the table and each way to break it."""

from collections.abc import Iterator

import yaml

from ami.topology.monitoring import metrics
from ami.topology.monitoring.metrics import QUEUE, SCRAPE_JOB, TASK
from ami.topology.monitoring.rule import Rule
from ami.topology.topology import Topology, complete
from ami.topology.workload import Workload

#: The percentile of the waits that the target is about, and the fewest tasks of five minutes that say something of it.
PERCENTILE, LEAST_STARTS = 0.95, 3
#: RabbitMQ does not tell the oldest message's age: what is known is exact to some half a minute.
OLDEST_TARGETS, OLDEST_SLACK_SECONDS = 2.0, 60.0
LETTERS_GROW = 10
MEMORY_SHARE = 0.95
#: A snapshot is older than this only where web cannot take one.
SNAPSHOT_SECONDS = 120

OF_QUEUE, OF_WORKER = f"{{{{ $labels.{QUEUE} }}}}", f"{{{{ $labels.{metrics.NODE} }}}}"

HEADER = """\
# Alert rules for Prometheus. Rendered from ami/topology/table.py by `make render`; do not edit. With the numbers of
# your environment, and a runbook_url into your handbook:
#   python -m ami.topology alerts alerts.yml --runbook https://antenna.example.org/admin/queues/handbook/
"""


def render(topology: Topology | None = None, runbook: str = "") -> str:
    """Return the rules as YAML, without ``runbook`` without links. Default topology: every row of the table."""
    found = {
        "groups": [
            {"name": f"antenna-{name}", "rules": [rule.as_dict(runbook) for rule in rules]}
            for name, rules in groups(topology or complete()).items()
        ]
    }
    return HEADER + yaml.safe_dump(found, sort_keys=False, width=110, allow_unicode=True)


def groups(topology: Topology) -> dict[str, list[Rule]]:
    """Return the rules by the name of their group."""
    return {
        "promises": [*(rule for row in topology.workloads for rule in _of_row(row)), *_of_promises()],
        "workers": list(_of_workers()),
        "deployment": list(_of_deployment()),
        "monitoring": list(_of_monitoring()),
    }


def oldest_seconds(row: Workload) -> float:
    """Return the age of the oldest message at which a queue is late beyond doubt."""
    return row.wait_target_seconds * OLDEST_TARGETS + OLDEST_SLACK_SECONDS


def _of_row(row: Workload) -> Iterator[Rule]:
    """Yield what has the row's own numbers in it."""
    only = f'{{{QUEUE}="{row.queue}"}}'
    late = f"histogram_quantile({PERCENTILE}, sum without ({TASK}) (rate({metrics.WAIT}{only}[5m])))"
    starts = f"sum without ({TASK}) (increase({metrics.WAIT.count}{only}[5m]))"
    yield Rule(
        "AntennaWaitOverTarget",
        f"{late} > {row.wait_target_seconds:g} and {starts} >= {LEAST_STARTS}",
        "5m",
        "warning",
        f"Tasks of {row.queue} begin late",
        f"95% of the tasks of {row.queue} began within {{{{ $value | humanizeDuration }}}}; the target is "
        f"{row.wait_target_seconds:g} s.",
        "operations/queues/#a-queue-grows",
        row.queue,
    )
    yield Rule(
        "AntennaOldestMessageWaits",
        f"{metrics.OLDEST}{only} > {oldest_seconds(row):g} unless {metrics.PAUSED}{only} == 1",
        "2m",
        "warning",
        f"The oldest message of {row.queue} waits for long",
        f"It has waited for {{{{ $value | humanizeDuration }}}}; the target of {row.queue} is "
        f"{row.wait_target_seconds:g} s.",
        "operations/queues/#a-queue-grows",
        row.queue,
    )


def _of_promises() -> Iterator[Rule]:
    yield Rule(
        "AntennaPromiseBroken",
        f"{metrics.PROMISE} == 0 unless {metrics.PAUSED} == 1",
        "2m",
        "critical",
        f"{OF_QUEUE} does not keep its promise",
        f"Tasks of {OF_QUEUE} begin later than its wait target; the page of the queues says how late.",
        "operations/queues/#a-queue-grows",
    )
    yield Rule(
        "AntennaNoConsumer",
        f"{metrics.CONSUMERS} == 0 unless {metrics.PAUSED} == 1",
        "2m",
        "critical",
        f"{OF_QUEUE} has no consumer",
        f"Nothing takes the messages of {OF_QUEUE}: its worker is gone, held or parked.",
        "operations/queues/#a-queue-has-no-consumer",
    )
    yield Rule(
        "AntennaQueuePaused",
        f"{metrics.PAUSED} == 1",
        "1h",
        "warning",
        f"{OF_QUEUE} has been paused for an hour",
        f"An operator has paused {OF_QUEUE}; the page of the queues says who and why.",
        "operations/queues/#pausing-parking-moving",
    )
    yield Rule(
        "AntennaDeadLettersGrow",
        f"delta({metrics.LETTERS}[15m]) >= {LETTERS_GROW}",
        "1m",
        "warning",
        f"Dead letters of {OF_QUEUE} grow",
        f"{OF_QUEUE} has {{{{ $value | humanize }}}} dead letters more than 15 minutes ago.",
        "operations/failures/#dead-letters",
    )


def _of_workers() -> Iterator[Rule]:
    yield Rule(
        "AntennaWorkerDown",
        f"{metrics.WORKER_UP} == 0",
        "2m",
        "critical",
        f"{OF_WORKER} is dead or cut off",
        f"{OF_WORKER} does not report, hangs, or has lost its broker.",
        "operations/workers/#a-worker-is-dead-wedged-or-cut-off",
    )
    yield Rule(
        "AntennaWorkerHeld",
        f"{metrics.WORKER_HELD} == 1",
        "5m",
        "warning",
        f"{OF_WORKER} takes no tasks",
        f"{OF_WORKER} has been held for five minutes: its memory is full.",
        "operations/workers/#a-worker-is-held",
    )
    yield Rule(
        "AntennaWorkerMemory",
        f"{metrics.WORKER_MEMORY} / {metrics.WORKER_LIMIT} > {MEMORY_SHARE}",
        "5m",
        "critical",
        f"{OF_WORKER} is near its memory limit",
        f"{OF_WORKER} uses {{{{ $value | humanizePercentage }}}} of its memory; the kernel may kill it.",
        "operations/workers/#a-worker-is-held",
    )


def _of_deployment() -> Iterator[Rule]:
    yield Rule(
        "AntennaBeatMissing",
        f"{metrics.BEATS_UP} == 0",
        "2m",
        "critical",
        "No beat runs",
        "Nothing publishes the scheduled tasks.",
        "operations/schedule/#beat-is-frozen-or-down",
    )
    yield Rule(
        "AntennaFinding",
        f'sum without (finding) ({metrics.FINDINGS}{{level="error"}}) > 0',
        "5m",
        "warning",
        "The live check has found errors",
        "`manage.py queues check --live` and the page of the queues list them, each with its remedy.",
        "#what-queues-check---live-finds",
    )


def _of_monitoring() -> Iterator[Rule]:
    yield Rule(
        "AntennaBrokerUnseen",
        f"{metrics.UNSEEN} == 1",
        "2m",
        "critical",
        "The broker does not answer",
        "Web cannot read the broker, so what waits is unknown; publishing fails as well.",
        "operations/services/#the-broker-is-down",
    )
    yield Rule(
        "AntennaNotScraped",
        f'up{{job="{SCRAPE_JOB}"}} == 0',
        "2m",
        "critical",
        "Web's /metrics cannot be read",
        "Web or its database does not answer, or the token is wrong: no other alert can fire.",
        "operations/records/#metrics-are-missing",
    )
    yield Rule(
        "AntennaNoMetrics",
        f"absent({metrics.TAKEN})",
        "5m",
        "critical",
        "There are no metrics of Antenna",
        f"No scrape of the job {SCRAPE_JOB} has worked for five minutes: no other alert can fire.",
        "operations/records/#metrics-are-missing",
    )
    yield Rule(
        "AntennaMetricsStale",
        f"time() - {metrics.TAKEN} > {SNAPSHOT_SECONDS}",
        "2m",
        "warning",
        "The figures are old",
        "Web answers with a snapshot that is {{ $value | humanizeDuration }} old.",
        "operations/records/#metrics-are-missing",
    )
