"""Renders the Grafana dashboard: a row per queue of the table, with the table's wait targets as thresholds."""

import json
from typing import Any

from ami.topology.monitoring import metrics
from ami.topology.monitoring.metrics import NODE, QUEUE, TASK, Metric
from ami.topology.monitoring.panels import (
    GREEN,
    RED,
    Panel,
    arranged,
    bars,
    chart,
    override,
    row,
    stat,
    thresholds,
)
from ami.topology.topology import Topology, complete

#: Grafana 12 writes this version, and reads every earlier one.
SCHEMA_VERSION = 41
UID = "antenna"
OF_QUEUE, OF_WORKER, OF_TASK = f"{{{{{QUEUE}}}}}", f"{{{{{NODE}}}}}", f"{{{{{TASK}}}}}"
#: The queue of a repeated row; all chosen queues elsewhere.
CHOSEN = f'{{{QUEUE}=~"$queue"}}'
WINDOW = "[$__rate_interval]"
DASHED = {"custom.lineStyle": {"fill": "dash", "dash": [8, 6]}, "custom.fillOpacity": 0}


def render(topology: Topology | None = None) -> str:
    """Return the dashboard as JSON. Default topology: every row of the table."""
    topology = topology or complete()
    lines = [
        [row("Promises")],
        [_promises(), _waits_against_targets(topology)],
        _deployment(),
        [row("$queue", repeat="queue")],
        *_of_queue(),
        [row("Workers")],
        _workers(),
        [row("Tasks and jobs")],
        _tasks(),
    ]
    board = {
        "uid": UID,
        "title": "Antenna: queues, workers, promises",
        "tags": ["antenna", "celery"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _variables(topology)},
        "annotations": {"list": []},
        "links": [],
        "panels": arranged(lines),
    }
    return json.dumps(board, indent=1) + "\n"


def _variables(topology: Topology) -> list[dict[str, Any]]:
    everything = {"selected": True, "text": ["All"], "value": ["$__all"]}
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    queue = {"name": "queue", "label": "Queue", "type": "custom", "query": ",".join(topology.queues)}
    return [
        {**source, "current": {}, "hide": 0, "refresh": 1},
        {**queue, "multi": True, "includeAll": True, "current": everything, "hide": 0},
    ]


def _quantile(metric: Metric, share: float) -> str:
    return f"histogram_quantile({share}, sum by ({QUEUE}, le) (rate({metric}{CHOSEN}{WINDOW})))"


def _per_minute(metric: Metric, by: str = QUEUE) -> str:
    return f"60 * sum by ({by}) (rate({metric}{CHOSEN}{WINDOW}))"


def _promises() -> Panel:
    text = "1: tasks begin within the wait target. 0: they do not. Absent: nothing ran and nothing waits."
    return stat("Promise kept", {OF_QUEUE: f"{metrics.PROMISE}{CHOSEN}"}, [(RED, None), (GREEN, 1)], text)


def _waits_against_targets(topology: Topology) -> Panel:
    text = "Red: over the wait target of the queue's row."
    panel = bars("p95 wait against the target", {OF_QUEUE: _quantile(metrics.WAIT, 0.95)}, "s", text)
    for each in topology.workloads:
        override(panel, each.queue, thresholds([(GREEN, None), (RED, each.wait_target_seconds)]))
    return panel


def _deployment() -> list[Panel]:
    findings = {"{{finding}}": f"{metrics.FINDINGS} > 0"}
    ages = {"figures": f"time() - {metrics.TAKEN}", "last tick": f"time() - {metrics.BEAT_TICK}"}
    return [
        stat("Broker unseen", {"unseen": str(metrics.UNSEEN)}, [(GREEN, None), (RED, 1)]),
        stat("Beats", {"beats": str(metrics.BEATS_UP)}, [(RED, None), (GREEN, 1)]),
        stat("Findings", findings, [(RED, None)], "What `manage.py queues check --live` finds."),
        stat("Dead letters", {OF_QUEUE: f"{metrics.LETTERS}{CHOSEN}"}, [(GREEN, None), (RED, 1)]),
        chart("Ages", ages, "s"),
        chart("Delayed messages", {"delayed": str(metrics.DELAYED)}),
    ]


def _of_queue() -> list[list[Panel]]:
    waits = chart(
        "Wait",
        {
            "p50": _quantile(metrics.WAIT, 0.5),
            "p95": _quantile(metrics.WAIT, 0.95),
            "p99": _quantile(metrics.WAIT, 0.99),
            "target": f"{metrics.WAIT_TARGET}{CHOSEN}",
        },
        "s",
    )
    override(waits, "target", DASHED)
    ages = {
        "oldest, or at most": f"{metrics.OLDEST}{CHOSEN}",
        "only a bound": f"{metrics.OLDEST_IS_BOUND}{CHOSEN}",
        "paused": f"{metrics.PAUSED}{CHOSEN}",
    }
    depth = {"waiting": f"{metrics.QUEUE_LENGTH}{CHOSEN}", "running": f"{metrics.RUNNING}{CHOSEN}"}
    takers = {
        "consumers": f"{metrics.CONSUMERS}{CHOSEN}",
        "workers": f"{metrics.QUEUE_WORKERS}{CHOSEN}",
        "processes": f"{metrics.QUEUE_PROCESSES}{CHOSEN}",
    }
    ends = {
        "started": _per_minute(metrics.STARTED),
        "succeeded": _per_minute(metrics.SUCCEEDED),
        "failed": _per_minute(metrics.FAILED),
        "retried": _per_minute(metrics.RETRIED),
    }
    runs = {"p50": _quantile(metrics.RUNTIME, 0.5), "p95": _quantile(metrics.RUNTIME, 0.95)}
    return [
        [chart("Messages", depth), waits, chart("Oldest message", ages, "s")],
        [chart("Tasks per minute", ends), chart("Run time", runs, "s"), chart("Consumers", takers)],
    ]


def _workers() -> list[Panel]:
    memory = {
        OF_WORKER: f"{metrics.WORKER_MEMORY} / {metrics.WORKER_LIMIT}",
        f"{OF_WORKER} holds at": str(metrics.WORKER_HOLDS_AT),
        f"{OF_WORKER} releases at": str(metrics.WORKER_RELEASES_AT),
    }
    states = {
        "up": f"sum({metrics.WORKER_UP})",
        "held": f"sum({metrics.WORKER_HELD})",
        "parked": f"sum({metrics.WORKER_PARKED})",
    }
    versions = {"{{version}}, {{state}}": f"count by (version, state) ({metrics.WORKER_INFO})"}
    work = {OF_WORKER: str(metrics.WORKER_ACTIVE), f"{OF_WORKER} processes": str(metrics.WORKER_CHILDREN)}
    return [
        chart("Memory of its limit", memory, "percentunit"),
        chart("Workers", states),
        chart("Versions and states", versions),
        chart("Running tasks", work),
    ]


def _tasks() -> list[Panel]:
    failing = {OF_TASK: f"topk(10, {_per_minute(metrics.FAILED, TASK)} > 0)"}
    slowest = {OF_TASK: f"topk(10, sum by ({TASK}) (rate({metrics.RUNTIME.name}_sum{CHOSEN}{WINDOW})))"}
    jobs = {"{{kind}}, {{status}}": str(metrics.JOBS)}
    versions = {"{{version}}": str(metrics.BUILD)}
    return [
        chart("Failed per minute", failing),
        chart("Busy processes by task", slowest, text="Seconds of run time per second."),
        chart("Jobs", jobs),
        stat("Version of web", versions, [(GREEN, None)]),
    ]
