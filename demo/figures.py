"""Figures per queue, from the workers' task logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ami.telemetry.task_log import read


@dataclass(frozen=True)
class QueueFigures:
    """One queue's figures. Waits: milliseconds from due to started. Memory: a child's peak in MiB."""

    queue: str
    done: int
    failed: int
    retried: int
    wait_p50_ms: float
    wait_p95_ms: float
    wait_max_ms: float
    workers: str
    peak_memory_mib: float


def by_queue(journal: Path, queues: Iterable[str]) -> list[QueueFigures]:
    """Return the figures of each queue, in the given order."""
    records = list(read(journal))
    return [_figures(queue, [record for record in records if record["queue"] == queue]) for queue in queues]


def _figures(queue: str, records: list[dict[str, Any]]) -> QueueFigures:
    waits = np.array([record["waited_seconds"] for record in records if record["waited_seconds"] is not None] or [0.0])
    return QueueFigures(
        queue=queue,
        done=sum(record["state"] == "SUCCESS" for record in records),
        failed=sum(record["state"] == "FAILURE" for record in records),
        retried=sum(record["state"] == "RETRY" for record in records),
        wait_p50_ms=float(np.percentile(waits, 50)) * 1000,
        wait_p95_ms=float(np.percentile(waits, 95)) * 1000,
        wait_max_ms=float(waits.max()) * 1000,
        workers=", ".join(sorted({record["worker"] for record in records})) or "-",
        peak_memory_mib=max((record["peak_memory_kib"] for record in records), default=0) / 1024,
    )
