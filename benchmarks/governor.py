"""``python -m benchmarks.governor``: what the memory-aware worker costs.

The reference is the same worker without the governor, measured in turn with it in the same run on the same machine:
tasks that do nothing, and the processor time of a worker that has nothing to do.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

import json  # noqa: E402

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import track  # noqa: E402
from rich.table import Table  # noqa: E402

from tests.places import new_place, until  # noqa: E402

if TYPE_CHECKING:
    from tests.places import Place, Process

#: Celery's own task that does nothing; no rule claims it, and it is not counted as unrouted.
NOTHING = "celery.accumulate"
QUEUE, SLOTS = "antenna", 2
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """Medians over the pairs. ``ratio`` is with the governor to without it, pair by pair."""

    figure: str
    without: float
    governed: float
    ratio: float
    lowest: float
    highest: float


def rate(governor: str, tasks: int) -> float:
    """Return how many tasks a second a worker of two children drains from a full queue."""
    with new_place("benchmark") as place:
        _prepare(place)
        with place.app.producer_pool.acquire(block=True) as producer:
            for _ in range(tasks):
                place.send(NOTHING, queue=QUEUE, producer=producer)
        _worker(place, governor)
        until(lambda: place.depth(QUEUE) < tasks * 0.95, 30, "the worker has begun")
        began, left = time.monotonic(), place.depth(QUEUE)
        until(lambda: place.depth(QUEUE) == 0, 120, "the queue is drained")
        return left / (time.monotonic() - began)


def idle_percent(governor: str, seconds: float) -> float:
    """Return what the parent of an idle worker takes of one core, in percent, at the default interval."""
    with new_place("benchmark") as place:
        _prepare(place)
        worker = _worker(place, governor)
        until(lambda: place.app.control.inspect(timeout=2).ping(), 20, "the worker answers")
        before, began = _ticks(worker), time.monotonic()
        time.sleep(seconds)
        return 100 * (_ticks(worker) - before) / TICKS_A_SECOND / (time.monotonic() - began)


def _prepare(place: Place) -> None:
    place.environment.pop("ANTENNA_JOURNAL_DIR")
    place.environment["ANTENNA_FALLBACK_CONCURRENCY"] = str(SLOTS)
    place.environment["ANTENNA_FALLBACK_MAX_TASKS_PER_CHILD"] = "1000000"  # Or new children are what is measured.
    place.environment["ANTENNA_LOG_LEVEL"] = "WARNING"
    place.queues("declare")


def _worker(place: Place, governor: str) -> Process:
    worker = place.worker(QUEUE, MEMORY_GOVERNOR=governor)
    until(lambda: len(os.listdir(f"/proc/{worker.popen.pid}/task")) > 0, 5)
    return worker


def _ticks(worker: Process) -> int:
    with open(f"/proc/{worker.popen.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main() -> int:
    """Measure in pairs and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.governor", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="pairs of runs (5)")
    parser.add_argument("--tasks", type=int, default=6000, help="tasks of each run (6000)")
    parser.add_argument("--idle-seconds", type=float, default=30, help="how long to watch an idle worker (30)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    pairs = []
    for number in track(range(options.pairs), "pairs", console=Console(stderr=True)):
        order = ("off", "on") if number % 2 else ("on", "off")
        found = {governor: rate(governor, options.tasks) for governor in order}
        pairs.append((found["off"], found["on"]))
    rows = [_measured("tasks that do nothing, a second", pairs)]
    idle = [(idle_percent("off", options.idle_seconds), idle_percent("on", options.idle_seconds))]
    rows.append(_measured("idle parent, percent of a core", idle))
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    table = Table("figure", "without (reference)", "with", "ratio", "lowest", "highest", box=None)
    for row in rows:
        values = (row.without, row.governed, row.ratio, row.lowest, row.highest)
        table.add_row(row.figure, *(f"{value:.3f}" for value in values))
    Console(width=110).print(table)
    return 0


def _measured(figure: str, pairs: list[tuple[float, float]]) -> Measured:
    ratios = [governed / max(without, 1e-9) for without, governed in pairs]
    without, governed = (float(np.median([pair[of] for pair in pairs])) for of in (0, 1))
    return Measured(figure, without, governed, float(np.median(ratios)), min(ratios), max(ratios))


if __name__ == "__main__":
    sys.exit(main())
