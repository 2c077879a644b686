"""Scenes for `promtool test rules`: figures over time as web sends them, and exactly which alerts fire."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ami.topology.monitoring import alerts, metrics
from ami.topology.monitoring.metrics import Metric
from ami.topology.topology import Topology
from ami.topology.workload import Workload

STEP_SECONDS, STEPS = 30, 140
#: Between the beginning of a scene and what its rates need to show it.
SETTLING_SECONDS = 360
#: When a scene without an alert is looked at.
QUIET_SECONDS = (360, 780, 1800)
ALWAYS = f"x{STEPS}"
NODE, SERVICE = "ingest@host", "celeryworker_ingest"


def series(metric: Metric | str, **labels: str) -> str:
    inner = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{inner}}}"


def constant(value: float) -> str:
    return f"{value:g}{ALWAYS}"


@dataclass(frozen=True)
class Scene:
    """``changed`` replaces series of a healthy deployment, None takes one away; ``fires`` are (alert, labels)."""

    name: str
    changed: Mapping[str, str | None]
    fires: tuple[tuple[str, Mapping[str, str]], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def healthy(topology: Topology) -> dict[str, str]:
    """Return the series of a deployment in which nothing is wrong."""
    found = {series("up", job=metrics.SCRAPE_JOB): constant(1)}
    for row in topology.workloads:
        own = {metrics.QUEUE: row.queue}
        found |= waits(row, late=0)
        found |= {
            series(metrics.CONSUMERS, **own): constant(1),
            series(metrics.PAUSED, **own): constant(0),
            series(metrics.PROMISE, **own): constant(1),
            series(metrics.OLDEST, **own): constant(0),
            series(metrics.LETTERS, **own): constant(3),
        }
    for metric, value in ((metrics.WORKER_HELD, 0), (metrics.WORKER_MEMORY, 900), (metrics.WORKER_LIMIT, 1000)):
        found[series(metric, hostname=NODE, service=SERVICE)] = constant(value)
    found |= {
        series(metrics.WORKER_UP, hostname=NODE): constant(1),
        series(metrics.BEATS_UP): constant(1),
        series(metrics.UNSEEN): constant(0),
        series(metrics.TAKEN): f"0+{STEP_SECONDS}{ALWAYS}",
        series(metrics.FINDINGS, finding="paused", level="warning"): constant(2),
    }
    return found


def waits(row: Workload, late: int, prompt: int = 10) -> dict[str, str]:
    """Return the wait histogram of a queue: so many tasks of each step begin at once, so many after two hours."""
    own = {"name": "a", metrics.QUEUE: row.queue}
    steps = {"0.01": prompt, "3600.0": prompt, "7200.0": prompt + late, "+Inf": prompt + late}
    found = {series(metrics.WAIT, **own, le=bound): f"0+{each}{ALWAYS}" for bound, each in steps.items()}
    return {**found, series(metrics.WAIT.count, **own): f"0+{prompt + late}{ALWAYS}"}


def scenes(topology: Topology) -> Iterator[Scene]:
    """Yield a scene for each way to break a promise, and for what only looks like one."""
    yield Scene("nothing is wrong", {})
    for row in topology.workloads:
        yield from _of_queue(row)
    yield from _of_workers()
    yield from _of_deployment(topology)


def _of_queue(row: Workload) -> Iterator[Scene]:
    own = {metrics.QUEUE: row.queue}

    def put(metric: Metric, value: float) -> dict[str, str]:
        return {series(metric, **own): constant(value)}

    def scene(name: str, changed: Mapping[str, str | None], *alert: str) -> Scene:
        return Scene(f"{row.queue}: {name}", changed, tuple((each, own) for each in alert))

    paused, most = put(metrics.PAUSED, 1), alerts.oldest_seconds(row)
    count, infinite = list(waits(row, 0))[-1], list(waits(row, 0))[-2]
    seldom = " ".join(f"{number}x4" for number in range(STEPS // 5))
    yield scene("tasks begin late", waits(row, late=5), "AntennaWaitOverTarget")
    yield scene("one task of many is late", waits(row, late=1, prompt=100))
    yield scene(
        "a task every 150 s begins late",
        {**dict.fromkeys(waits(row, 0), constant(0)), count: seldom, infinite: seldom},
    )
    yield scene("oldest message is late", put(metrics.OLDEST, most + 1), "AntennaOldestMessageWaits")
    yield scene("oldest message is not late", put(metrics.OLDEST, most))
    yield scene("promise is broken", put(metrics.PROMISE, 0), "AntennaPromiseBroken")
    yield scene("no consumer", put(metrics.CONSUMERS, 0), "AntennaNoConsumer")
    stopped = paused | put(metrics.PROMISE, 0) | put(metrics.CONSUMERS, 0) | put(metrics.OLDEST, most + 1)
    yield scene("is paused", stopped, "AntennaQueuePaused")
    letters = series(metrics.LETTERS, **own)
    yield scene("dead letters grow", {letters: f"3+1{ALWAYS}"}, "AntennaDeadLettersGrow")
    yield scene("a few more dead letters", {letters: f"3x3 11x{STEPS}"})


def _of_workers() -> Iterator[Scene]:
    service = {"hostname": NODE, "service": SERVICE}
    up = series(metrics.WORKER_UP, hostname=NODE)
    yield Scene("worker is dead", {up: constant(0)}, (("AntennaWorkerDown", {"hostname": NODE}),))
    held = {series(metrics.WORKER_HELD, **service): constant(1)}
    yield Scene("worker is held", held, (("AntennaWorkerHeld", service),))
    full = {series(metrics.WORKER_MEMORY, **service): constant(960)}
    yield Scene("worker is near its limit", full, (("AntennaWorkerMemory", service),))


def _of_deployment(topology: Topology) -> Iterator[Scene]:
    up, taken = series("up", job=metrics.SCRAPE_JOB), series(metrics.TAKEN)
    job = {"job": metrics.SCRAPE_JOB}
    yield Scene("no beat", {series(metrics.BEATS_UP): constant(0)}, (("AntennaBeatMissing", {}),))
    error = {series(metrics.FINDINGS, finding="no-worker", level="error"): constant(1)}
    yield Scene("the live check finds an error", error, (("AntennaFinding", {"level": "error"}),))
    broker = (metrics.CONSUMERS, metrics.PROMISE, metrics.OLDEST, metrics.LETTERS)
    of_broker = [series(each, **{metrics.QUEUE: row.queue}) for row in topology.workloads for each in broker]
    away = {**dict.fromkeys(of_broker), series(metrics.UNSEEN): constant(1)}
    yield Scene("broker does not answer", away, (("AntennaBrokerUnseen", {}),))
    gone: dict[str, str | None] = dict.fromkeys(healthy(topology))
    both = (("AntennaNotScraped", job), ("AntennaNoMetrics", {}))
    yield Scene("web does not answer", {**gone, up: constant(0)}, both)
    yield Scene("nothing is scraped", gone, (("AntennaNoMetrics", {}),))
    yield Scene("figures are old", {taken: constant(0)}, (("AntennaMetricsStale", {}),))


def rule_test(scene: Scene, topology: Topology, rules: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return one test for promtool: no alert fires before its time, and then exactly those of the scene do."""
    shown = {**healthy(topology), **scene.changed}
    lasts = [_seconds(rules[alert]["for"]) for alert, _ in scene.fires]
    due = [_firing(alert, labels, rules[alert]) for alert, labels in scene.fires]
    if scene.fires:
        checks = [(min(lasts) - STEP_SECONDS, []), (max(lasts) + SETTLING_SECONDS, due)]
    else:
        checks = [(seconds, due) for seconds in QUIET_SECONDS]
    query = {"expr": 'ALERTS{alertstate="firing"}'}
    return {
        "name": scene.name,
        "interval": f"{STEP_SECONDS}s",
        "input_series": [{"series": name, "values": values} for name, values in shown.items() if values],
        "promql_expr_test": [{**query, "eval_time": f"{at}s", "exp_samples": found} for at, found in checks],
    }


def _firing(alert: str, labels: Mapping[str, str], rule: Mapping[str, Any]) -> dict[str, Any]:
    found = {"alertname": alert, "alertstate": "firing", "severity": rule["labels"]["severity"], **labels}
    return {"labels": series("ALERTS", **found), "value": 1}


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]
