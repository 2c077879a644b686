"""What the queue over object storage does a second, beside what its disk can do.

The reference is the floor of every durable queue: one process that appends 700 bytes to a file and waits for the disk,
measured in turns with each row, because a shared machine has moods. One operation is an enqueue, a dequeue or an ack.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from ami.jqueue import BrokerQueue, InMemoryStorage, LocalFileSystemStorage
from ami.transports.objectstore.journal.folder import FolderJournal
from ami.transports.objectstore.queue import snapshot
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.shortener import SNAPSHOT_BYTES
from benchmarks.frame import Figure

PAYLOAD = os.urandom(700)
FILL_BATCH = 500
FLOOR_SECONDS, ROW_SECONDS = 0.2, 0.4
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
SHALLOW, DEEPEST, FLATNESS_TARGET = 100, 100_000, 0.8

Key = tuple[str, int, int]


def append_floor(folder: Path, seconds: float) -> float:
    """Return how often a second one process appends 700 bytes and waits until they are on disk."""
    fd = os.open(folder / "floor.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return _rate(lambda: (os.write(fd, PAYLOAD), os.fdatasync(fd)), seconds)
    finally:
        os.close(fd)


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


def snapshot_figure(storage: Any, depth: int) -> Figure:
    """Time what a store does when its journal has grown long enough; the reference is what is appended until then."""
    store = storage.store()
    with store.lock:
        began = time.perf_counter()
        content = snapshot.dump(store.look())
        seconds = time.perf_counter() - began
    every = max(SNAPSHOT_BYTES, FolderJournal.snapshot_share * len(content)) / 2**20
    return Figure(f"snapshot at depth {depth:,}", "s", seconds, "once in MiB of journal", every, seconds / every)


def figures(quick: bool) -> Iterator[Figure]:
    """Measure every row once in each round; what is compared is measured one after the other."""
    depths = (SHALLOW, 10_000) if quick else (0, SHALLOW, 1_000, 10_000, 100_000)
    with tempfile.TemporaryDirectory(prefix="objectstore-benchmark-") as name:
        folder = Path(name)
        places = [(kind, depth) for kind in STORAGES for depth in depths]
        storages = {place: filled(place[0], folder, place[1]) for place in _shown(places, "filling the queues")}
        found: dict[Key, list[tuple[float, float]]] = defaultdict(list)
        rows = [(kind, callers, depth) for kind in STORAGES for callers in TARGETS for depth in depths]
        for kind, callers, depth in _shown(rows * (2 if quick else 7), "measuring"):
            found[kind, callers, depth].append(_pair(storages[kind, depth], callers, folder))
        for key in rows:
            yield from _of_row(key, found)
        for depth in depths:
            yield snapshot_figure(storages["folder", depth], depth)


def _pair(storage: Any, callers: int, folder: Path) -> tuple[float, float]:
    """Return (operations a second, the disk's floor)."""
    floors, rates = [], []
    for _ in range(SLICES):
        floors.append(append_floor(folder, FLOOR_SECONDS / SLICES))
        rates.append(asyncio.run(operations(storage, callers, ROW_SECONDS / SLICES)))
    return float(np.mean(rates)), float(np.mean(floors))


def _shown(steps: list[Any], what: str) -> Any:
    return track(steps, what, console=Console(stderr=True))


def _of_row(key: Key, found: dict[Key, list[tuple[float, float]]]) -> Iterator[Figure]:
    """Yield a row beside the disk's floor, and the deepest beside the shallow one of the same round."""
    kind, callers, depth = key
    pairs = found[key]
    rate, floor = (float(np.median([pair[of] for pair in pairs])) for of in (0, 1))
    what, target = f"{kind}, {callers} callers, depth {depth:,}", None
    if kind == "folder" and depth in TARGET_DEPTHS:
        target = TARGETS[callers]
    ratio = float(np.median([one / other for one, other in pairs]))
    yield Figure(what, "ops/s", rate, "appends of 700 bytes, synced", floor, ratio, at_least=target)
    if depth == DEEPEST:
        shallow = found[kind, callers, SHALLOW]
        ratio = float(np.median([deep[0] / other[0] for deep, other in zip(pairs, shallow, strict=True)]))
        other = float(np.median([pair[0] for pair in shallow]))
        yield Figure(what, "ops/s", rate, f"depth {SHALLOW}", other, ratio, at_least=FLATNESS_TARGET)
