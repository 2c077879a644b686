"""``python -m benchmarks.objectstore``: what the queue over object storage does a second, beside what its disk can do.

The reference is the floor of every durable queue: one process that appends 700 bytes to a file and waits for the disk,
measured in turns with each row, because a shared machine has moods. One operation is an enqueue, a dequeue or an ack.
Only what has a target, in a minute: ``python -m benchmarks.objectstore --depths 100 10000``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ami.jqueue import BrokerQueue, InMemoryStorage, LocalFileSystemStorage
from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.queue import snapshot
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.shortener import SNAPSHOT_BYTES

PAYLOAD = os.urandom(700)
FILE = os.urandom(1000)
FILL_BATCH = 500
FLOOR_SECONDS = 0.2
#: Floor and queue take turns within a row, since others may use the disk from one moment to the next.
SLICES = 3
STORAGES: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: InMemoryStorage(),
    "folder": lambda folder: LocalFileSystemStorage(folder, journal=True),
}

#: What the folder shall reach at these depths: operations a second in units of the floor, by callers.
TARGETS = {1: 0.42, 10: 2.07, 50: 5.0}
TARGET_DEPTHS = (100, 10_000)
#: How far depth 100,000 may lie under depth 100.
SHALLOW, FLATNESS_TARGET = 100, 0.8

Key = tuple[str, int, int]


@dataclass(frozen=True)
class Row:
    """Medians over the rounds; ``ratio`` is the median of each round's ratio to the floor in the same round.

    ``flatness`` is the median of each round's operations at this depth to those at depth 100, one after the other.
    """

    storage: str
    depth: int
    callers: int
    operations_per_second: float
    floor_per_second: float
    ratio: float
    lowest: float
    highest: float
    target: float | None
    flatness: float | None


@dataclass(frozen=True)
class Snapshot:
    """What keeping the journal short costs: a stop of ``seconds`` each time ``every_bytes`` were appended."""

    depth: int
    seconds: float
    every_bytes: int


def append_floor(folder: Path, seconds: float) -> float:
    """Return how often a second one process appends 700 bytes and waits until they are on disk."""
    fd = os.open(folder / "floor.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return _rate(lambda: (os.write(fd, PAYLOAD), os.fdatasync(fd)), seconds)
    finally:
        os.close(fd)


def rename_floor(folder: Path, seconds: float) -> float:
    """Return how often a second one process replaces a file of 1 kB: written, on disk, renamed."""

    def replace() -> None:
        with (folder / "floor.new").open("wb") as file:
            file.write(FILE)
            file.flush()
            os.fsync(file.fileno())
        os.replace(folder / "floor.new", folder / "floor.json")

    return _rate(replace, seconds)


def _rate(once: Callable[[], Any], seconds: float) -> float:
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        once()
        count += 1
    return count / (time.perf_counter() - began)


def filled(kind: str, folder: Path, depth: int) -> Any:
    """Return a storage whose queue holds ``depth`` jobs, put there in batches: how it became deep is not measured."""
    storage = STORAGES[kind](folder / f"{kind}-{depth}")
    for first in range(0, depth, FILL_BATCH):
        count = min(FILL_BATCH, depth - first)
        storage.store().commit([Enqueue(str(uuid.uuid4()), PAYLOAD, "work") for _ in range(count)])
    return storage


async def operations(storage: Any, callers: int, seconds: float) -> float:
    """Return how many operations a second so many callers do; the queue stays as deep as it is."""
    count, deadline = 0, 0.0

    async def turn(queue: BrokerQueue) -> int:
        await queue.enqueue("work", PAYLOAD)
        jobs = await queue.dequeue("work")
        for job in jobs:
            await queue.ack(job.id)
        return 2 + len(jobs)

    async def call(queue: BrokerQueue) -> None:
        nonlocal count
        while time.perf_counter() < deadline:
            done = await turn(queue)  # In a line with the sum, what the others add meanwhile would be lost.
            count += done

    async with BrokerQueue(storage) as queue:
        await turn(queue)  # The first one of all reads what the queue holds.
        began = time.perf_counter()
        deadline = began + seconds
        await asyncio.gather(*(call(queue) for _ in range(callers)))
        return count / (time.perf_counter() - began)


def measure_snapshot(storage: Any, depth: int) -> Snapshot:
    """Time what a store does when its journal has grown long enough."""
    store = storage.store()
    with store.lock:
        began = time.perf_counter()
        content = snapshot.dump(store.look())
        return Snapshot(
            depth, time.perf_counter() - began, max(SNAPSHOT_BYTES, FolderJournal.snapshot_share * len(content))
        )


def measure(options: argparse.Namespace, folder: Path) -> tuple[list[Row], list[Snapshot]]:
    """Measure every row once in each round; what is compared is measured one after the other."""
    places = [(kind, depth) for kind in STORAGES for depth in options.depths]
    storages = {place: filled(place[0], folder, place[1]) for place in _shown(places, "filling the queues")}
    found: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    rows = [(kind, callers, depth) for kind in STORAGES for callers in options.callers for depth in options.depths]
    for kind, callers, depth in _shown(rows * options.rounds, "measuring"):
        found[kind, callers, depth].append(_pair(storages[kind, depth], callers, folder, options.seconds))
    snapshots = [measure_snapshot(storages["folder", depth], depth) for depth in options.depths]
    return [_row(key, found) for key in rows], snapshots


def _pair(storage: Any, callers: int, folder: Path, seconds: float) -> tuple[float, float]:
    """Return (operations a second, the disk's floor)."""
    floors, rates = [], []
    for _ in range(SLICES):
        floors.append(append_floor(folder, FLOOR_SECONDS / SLICES))
        rates.append(asyncio.run(operations(storage, callers, seconds / SLICES)))
    return float(np.mean(rates)), float(np.mean(floors))


def _shown(steps: list[Any], what: str) -> Any:
    return track(steps, what, console=Console(stderr=True))


def _row(key: Key, found: dict[Key, list[tuple[float, float]]]) -> Row:
    kind, callers, depth = key
    pairs = found[key]
    ratios = [rate / floor for rate, floor in pairs]
    rate, floor = (float(np.median([pair[of] for pair in pairs])) for of in (0, 1))
    target = TARGETS.get(callers) if kind == "folder" and depth in TARGET_DEPTHS else None
    shallow = found.get((kind, callers, SHALLOW), []) if depth > SHALLOW else []
    flatness = [deep[0] / other[0] for deep, other in zip(pairs, shallow, strict=False)]
    return Row(
        kind,
        depth,
        callers,
        rate,
        floor,
        float(np.median(ratios)),
        min(ratios),
        max(ratios),
        target,
        float(np.median(flatness)) if flatness else None,
    )


def main() -> int:
    """Measure and print the table."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="objectstore-benchmark-", dir=options.folder) as name:
        folder = Path(name)
        floors = {"append 700 B": append_floor(folder, 1), "write 1 kB, fsync, rename": rename_floor(folder, 1)}
        rows, snapshots = measure(options, folder)
    if options.json:
        whole = {"floors": floors, "rows": rows, "snapshots": snapshots}
        print(json.dumps(whole, default=asdict))
        return 0
    _print(floors, rows, snapshots)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objectstore", description=__doc__)
    numbers: dict[str, Any] = {"type": int, "nargs": "+", "metavar": "N"}
    parser.add_argument("--depths", **numbers, default=[0, 100, 1_000, 10_000, 100_000], help="0 100 ... 100000")
    parser.add_argument("--callers", **numbers, default=[1, 10, 50], help="concurrent callers (1 10 50)")
    parser.add_argument("--seconds", type=float, default=0.4, help="how long each row is measured, each time (0.4)")
    parser.add_argument("--rounds", type=int, default=7, help="how often, all rows in turn (7)")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure (the temporary folder)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _against(target: float, ratio: float) -> str:
    return f"{ratio:.2f} >= {target:g}: {'met' if ratio >= target else 'MISSED'}"


def _print(floors: dict[str, float], rows: list[Row], snapshots: list[Snapshot]) -> None:
    console = Console(width=110, highlight=False)
    for what, rate in floors.items():
        console.print(f"floor: {what}: {rate:,.0f}/s")
    columns = ("storage", "callers", "depth", "ops/s", "floor/s", "x floor", "lowest", "highest", "target")
    table = Table(*columns, f"x depth {SHALLOW}", box=None)
    for row in rows:
        figures = (f"{value:,.0f}" for value in (row.operations_per_second, row.floor_per_second))
        ratios = (f"{value:.2f}" for value in (row.ratio, row.lowest, row.highest))
        target = "" if row.target is None else _against(row.target, row.ratio)
        flatness = "" if row.flatness is None else f"{row.flatness:.2f}"
        table.add_row(row.storage, str(row.callers), f"{row.depth:,}", *figures, *ratios, target, flatness)
    console.print(table)
    deepest = max(row.depth for row in rows)
    for row in rows:
        if row.depth == deepest and row.flatness is not None:
            verdict = _against(FLATNESS_TARGET, row.flatness)
            console.print(f"{row.storage}, {row.callers} callers, depth {deepest:,} to {SHALLOW}: {verdict}")
    for one in snapshots:
        size = f"{one.every_bytes / 2**20:.0f} MiB"
        console.print(f"depth {one.depth:,}: a snapshot takes {one.seconds:.3f} s, after each {size} of journal")


if __name__ == "__main__":
    sys.exit(main())
