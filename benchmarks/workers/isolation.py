"""The waits of interactive tasks during a flood, with and without split queues.

The reference is one queue with the same four slots, measured in the same run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

import numpy as np  # noqa: E402

from ami.topology.topology import load, override_name  # noqa: E402
from benchmarks.frame import Figure  # noqa: E402
from tests.support.place import new_place, until  # noqa: E402

if TYPE_CHECKING:
    from tests.support.place import Place

FLOOD_TASK = "tests.support.worker_tasks.basic.hold"
PROBE_TASK = "tests.support.worker_tasks.basic.succeed"
PROBE_SECONDS = 0.25


@dataclass(frozen=True)
class Layout:
    """The queues of flood and probes, and the slots of each queue's worker."""

    name: str
    flood: str
    probe: str
    workers: dict[str, int]


LAYOUTS = (
    Layout("one queue, 4 slots (reference)", "antenna", "antenna", {"antenna": 4}),
    Layout(
        "split, 2 + 2 slots", "antenna-ingest", "antenna-interactive", {"antenna-ingest": 2, "antenna-interactive": 2}
    ),
)


@dataclass(frozen=True)
class Measured:
    """Waits in milliseconds; the flood's rate in tasks per second."""

    layout: str
    probes: int
    p50_ms: float
    p95_ms: float
    max_ms: float
    flood_per_second: float


def measure(layout: Layout, flood: int, task_seconds: float) -> Measured:
    """Publish ``flood`` tasks of ``task_seconds``, send probes until they are done, and return the figures."""
    with new_place("benchmark") as place:
        place.queues("declare")
        for _ in range(flood):
            place.send(FLOOD_TASK, task_seconds, queue=layout.flood)
        for queue, slots in layout.workers.items():
            # As the row's number: the reference has more slots than the container of its row holds.
            place.worker(queue, **{override_name(load({}).workload(queue), "concurrency"): str(slots)})
        probes = _probe(place, layout, flood)
        waits = 1000 * np.array([record["waited_seconds"] for record in place.ran("tasks.succeed")])
        done = place.ran("tasks.hold")
        seconds = done[-1]["started_at"] - done[0]["started_at"]
    p50, p95 = (float(np.percentile(waits, of)) for of in (50, 95))
    return Measured(layout.name, probes, p50, p95, float(waits.max()), len(done) / seconds)


def _probe(place: Place, layout: Layout, flood: int) -> int:
    count = 0
    while len(place.ran("tasks.hold")) < flood:
        place.send(PROBE_TASK, queue=layout.probe)
        count += 1
        time.sleep(PROBE_SECONDS)
    until(lambda: len(place.ran("tasks.succeed")) >= count, 60, "every probe ran")
    return count


def figures(quick: bool) -> Iterator[Figure]:
    """Measure both layouts."""
    one, split = (measure(layout, 100 if quick else 600, 0.1) for layout in LAYOUTS)
    for what, unit, name in (
        ("wait of an interactive task, p50", "ms", "p50_ms"),
        ("wait of an interactive task, p95", "ms", "p95_ms"),
        ("tasks of the flood", "/s", "flood_per_second"),
    ):
        value, reference = getattr(split, name), getattr(one, name)
        yield Figure(f"{what}, {split.layout}", unit, value, one.layout, reference, value / reference)
