"""The workers of the shared snapshot by host, each with a gauge of its memory, and memory over time as lines."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ami.console import quantities
from ami.telemetry.snapshots.shape import WorkerFigures

GAUGE_WIDTH = 160
CHART_WIDTH, CHART_HEIGHT = 600, 120


@dataclass(frozen=True)
class Gauge:
    """Used memory of a limit; the units are those of the SVG's view box. A threshold is None without a governor."""

    used: float
    hold: float | None
    release: float | None
    text: str
    is_full: bool


@dataclass(frozen=True)
class ShownWorker:
    """A worker with its gauge; None where it does not tell its memory."""

    figures: WorkerFigures
    gauge: Gauge | None


@dataclass(frozen=True)
class Host:
    """The workers of one host, and the memory that they use together."""

    name: str
    workers: tuple[ShownWorker, ...]

    @property
    def running(self) -> int:
        return sum(len(worker.figures.running) for worker in self.workers)


@dataclass(frozen=True)
class Line:
    """One column of a series as the points of polylines: an unknown value ends one, and the next begins another."""

    name: str
    points: tuple[str, ...]


@dataclass(frozen=True)
class Chart:
    """Lines over time under one scale, from 0 to ``most_bytes``."""

    lines: tuple[Line, ...]
    most_bytes: float
    since: float
    until: float


def hosts(workers: Iterable[WorkerFigures]) -> list[Host]:
    """Return the workers by host."""
    listed = sorted(workers, key=lambda worker: (worker.host, worker.node))
    return [_host(name, list(group)) for name, group in groupby(listed, lambda worker: worker.host)]


def named(workers: Iterable[WorkerFigures], name: str) -> list[WorkerFigures]:
    """Return the worker of this node, or those of this service or host, in this order."""
    listed = list(workers)
    for field in ("node", "service", "host"):
        if found := [worker for worker in listed if getattr(worker, field) == name]:
            return found
    return []


def gauge(worker: WorkerFigures) -> Gauge | None:
    """Return the gauge of a worker's memory."""
    used, limit = worker.memory_used_bytes, worker.memory_limit_bytes
    if used is None or not limit:
        return None
    hold, release = _place(worker.hold_percent), _place(worker.release_percent)
    text = f"{quantities.size(used)} of {quantities.size(limit)} used, {100 * used / limit:.0f} %"
    if worker.hold_percent is not None:
        text += f"; holds at {worker.hold_percent:.0f} %"
    if worker.release_percent is not None:
        text += f", releases below {worker.release_percent:.0f} %"
    width = min(1.0, used / limit) * GAUGE_WIDTH
    return Gauge(round(width, 1), hold, release, text, hold is not None and width >= hold)


def as_row(worker: WorkerFigures) -> dict[str, Any]:
    """Return what the table's CSV and JSON say of a worker."""
    names = (
        "host node service version state why queues closed_queues concurrency children pid started_at seen_seconds "
        "memory_used_bytes memory_limit_bytes hold_percent release_percent held_seconds reasons"
    )
    found = {name: getattr(worker, name) for name in names.split()}
    return found | {"running": [f"{task.task} {task.id}" for task in worker.running]}


def chart(times: Sequence[float], columns: dict[str, list[float | None]]) -> Chart | None:
    """Return lines of the memory's columns; None without a value."""
    wanted = {name: columns.get(name, []) for name in ("memory_used_bytes", "memory_limit_bytes")}
    most = max((value for values in wanted.values() for value in values if value is not None), default=0.0)
    if not most or len(times) < 2:
        return None
    since, until = times[0], times[-1]
    lines = tuple(Line(name, tuple(_runs(times, values, most))) for name, values in wanted.items())
    return Chart(lines, most, since, until)


def _runs(times: Sequence[float], values: Sequence[float | None], most: float) -> Iterable[str]:
    run: list[str] = []
    for time, value in zip(times, values, strict=False):
        if value is None:
            if run:
                yield " ".join(run)
            run = []
            continue
        x = CHART_WIDTH * (time - times[0]) / ((times[-1] - times[0]) or 1)
        run.append(f"{x:.1f},{CHART_HEIGHT * (1 - value / most):.1f}")
    if run:
        yield " ".join(run)


def _place(percent: float | None) -> float | None:
    return None if percent is None else round(GAUGE_WIDTH * min(100.0, percent) / 100, 1)


def _host(name: str, workers: list[WorkerFigures]) -> Host:
    return Host(name, tuple(ShownWorker(worker, gauge(worker)) for worker in workers))
