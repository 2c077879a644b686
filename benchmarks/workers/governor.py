"""The cost of the memory-aware worker.

The reference is the same worker without the governor: at the same time for empty tasks, alternately for the processor
time of an idle worker.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import track  # noqa: E402

from benchmarks.frame import Figure  # noqa: E402
from tests.support.place import new_place, until  # noqa: E402

if TYPE_CHECKING:
    from tests.support.place import Place, Process

#: Celery's own empty task; no rule claims it, and it is not counted as unrouted.
NOTHING = "celery.accumulate"
QUEUES = ("antenna", "antenna-housekeeping")
#: Few, so that most of the time is spent on replacing children.
TASKS_PER_CHILD = 2
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def rates(governors: dict[str, str], tasks: int) -> dict[str, float]:
    """Return the tasks per second of each queue's worker with one child, measured at the same time.

    One after the other would compare the changing speed of a shared machine.
    """
    with new_place("benchmark") as place:
        _prepare(place)
        with place.app.producer_pool.acquire(block=True) as producer:
            for _ in range(tasks):
                for queue in QUEUES:
                    place.send(NOTHING, queue=queue, producer=producer)
        for queue, governor in governors.items():
            place.worker(queue, MEMORY_GOVERNOR=governor)
        until(lambda: all(place.depth(queue) < tasks * 0.95 for queue in QUEUES), 30, "both have begun")
        began, before = time.monotonic(), {queue: place.depth(queue) for queue in QUEUES}
        until(lambda: min(place.depth(queue) for queue in QUEUES) < tasks * 0.1, 120, "one is nearly drained")
        seconds = time.monotonic() - began
        return {governors[queue]: (before[queue] - place.depth(queue)) / seconds for queue in QUEUES}


def idle_percent(governor: str, seconds: float) -> float:
    """Return the processor time of an idle worker's parent, in percent of one core, at the default interval."""
    with new_place("benchmark") as place:
        _prepare(place)
        worker = place.worker(QUEUES[0], MEMORY_GOVERNOR=governor)
        until(lambda: place.app.control.inspect(timeout=2).ping(), 20, "the worker answers")
        before, began = _ticks(worker), time.monotonic()
        time.sleep(seconds)
        return 100 * (_ticks(worker) - before) / TICKS_A_SECOND / (time.monotonic() - began)


def gap_seconds(governor: str, children: int) -> float:
    """Return the median pause of a worker with one child while that is replaced after its last task.

    It is the time from the start of a child's last task, which does nothing, to the start of its successor's first.
    """
    with new_place("benchmark") as place:
        journal, tasks = place.environment["ANTENNA_JOURNAL_DIR"], TASKS_PER_CHILD * children
        _prepare(place)
        place.environment["ANTENNA_JOURNAL_DIR"] = journal
        place.environment["ANTENNA_FALLBACK_MAX_TASKS_PER_CHILD"] = str(TASKS_PER_CHILD)
        for _ in range(tasks):
            place.send(NOTHING, queue=QUEUES[0])
        place.worker(QUEUES[0], MEMORY_GOVERNOR=governor)
        until(lambda: len(place.journal) == tasks, 30 * children, "all have run")
        started = np.array([each["started_at"] for each in place.journal])
        last, first = started[TASKS_PER_CHILD - 1 : -1 : TASKS_PER_CHILD], started[TASKS_PER_CHILD::TASKS_PER_CHILD]
        return float(np.median(first - last))


def _prepare(place: Place) -> None:
    place.environment.pop("ANTENNA_JOURNAL_DIR")
    for key in ("FALLBACK", "HOUSEKEEPING"):
        place.environment[f"ANTENNA_{key}_CONCURRENCY"] = "1"
        place.environment[f"ANTENNA_{key}_MAX_TASKS_PER_CHILD"] = "1000000"  # Otherwise this measures new children.
    place.environment["ANTENNA_LOG_LEVEL"] = "WARNING"
    place.queues("declare")


def _ticks(worker: Process) -> int:
    with open(f"/proc/{worker.popen.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def figures(quick: bool) -> Iterator[Figure]:
    """Measure in pairs."""
    tasks, seconds, children = (1000, 5, 4) if quick else (6000, 30, 20)
    pairs = []
    for number in track(range(2 if quick else 6), "pairs", console=Console(stderr=True)):
        order = ("off", "on") if number % 2 else ("on", "off")
        found = rates(dict(zip(QUEUES, order, strict=True)), tasks)
        pairs.append((found["off"], found["on"]))
    yield _figure("tasks that do nothing", "/s", pairs)
    yield _figure("idle parent", "% of a core", [(idle_percent("off", seconds), idle_percent("on", seconds))])
    yield _figure("pause for a new child", "s", [(gap_seconds("off", children), gap_seconds("on", children))])


def _figure(what: str, unit: str, pairs: list[tuple[float, float]]) -> Figure:
    """Return the medians, and the geometric mean of the pairs' ratios."""
    ratios = [max(governed, 1e-3) / max(without, 1e-3) for without, governed in pairs]
    without, governed = (float(np.median([pair[of] for pair in pairs])) for of in (0, 1))
    return Figure(what, unit, governed, "without the governor", without, float(np.exp(np.mean(np.log(ratios)))))
