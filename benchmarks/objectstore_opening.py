"""``python -m benchmarks.objectstore_opening``: how long a fresh process takes until it has a queue's first message.

A queue of 10,000 messages is the reference of one of 100,000, round by round. "Never consumed": publishers filled it,
so all of its journal is read. "Consumed before": a consumer had it open and died. Imports are not measured. The ratio
is that of processor times: what others do on the machine changes it least.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from kombu import Connection, Queue
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ami.transports import register
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.factory import open_folder
from tests.support.place import ROOT

QUEUE, ENTRYPOINT = "opening", "work"
SHALLOW, DEEP = 10_000, 100_000
#: How many times as long the deep queue may take, and what is aimed at.
TARGET, AIM = 10.0, 3.0
BODY = "x" * 500

#: Each prints its processor time and its wall time in seconds, consumes on, and crashes with its messages leased.
TRANSPORT = """
import os, signal, sys, time
from kombu import Connection
from ami.transports import register
register()
with Connection("objectstore+memory://warm") as connection:
    connection.default_channel  # Imports what a connection needs.
began, wall = time.process_time(), time.perf_counter()
channel = Connection("objectstore+file://" + sys.argv[1]).default_channel
assert channel.basic_get("opening") is not None
print(time.process_time() - began, time.perf_counter() - wall, flush=True)
assert channel.basic_get("opening") is not None
os.kill(os.getpid(), signal.SIGKILL)
"""
JQUEUE = """
import asyncio, os, signal, sys, time
from ami.jqueue import BrokerQueue, LocalFileSystemStorage
async def consume():
    async with BrokerQueue(LocalFileSystemStorage(sys.argv[1] + "/queues/opening", journal=True)) as queue:
        [job] = await queue.dequeue("work")
        print(time.process_time() - began, time.perf_counter() - wall, flush=True)
        [job] = await queue.dequeue("work")
        os.kill(os.getpid(), signal.SIGKILL)
began, wall = time.process_time(), time.perf_counter()
asyncio.run(consume())
"""
PROGRAMS = {"transport": TRANSPORT, "ami.jqueue": JQUEUE}


def fill(folder: Path, depth: int) -> None:
    """Publish one message, and enqueue copies of it under new ids, one batch each as publishers do."""
    register()
    with Connection(f"objectstore+file://{folder}") as connection:
        channel = connection.default_channel
        Queue(QUEUE, durable=True)(channel).declare()
        connection.Producer(channel).publish({"body": BODY}, routing_key=QUEUE)
    place = folder / "queues" / QUEUE
    store = open_folder(place)
    [entry] = store.look().entries.values()
    published = store.payload(entry)
    store.destroy()
    # How it was filled is not measured: nothing waits for the disk.
    store = open_folder(place, durable=False)
    for _ in range(depth):
        store.commit([Enqueue(str(uuid.uuid4()), published, ENTRYPOINT)])
    store.close()


def opened(way: str, folder: Path) -> tuple[float, float]:
    """Return (processor seconds, seconds) until a fresh process has the first message."""
    argv = [sys.executable, "-c", PROGRAMS[way], str(folder)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    if not done.stdout.strip():
        raise RuntimeError(done.stderr)
    cpu, wall = map(float, done.stdout.split())
    return cpu, wall


def measure(rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each way and state; in each round the depths take turns."""
    filled = {depth: folder / str(depth) for depth in (SHALLOW, DEEP)}
    for depth, place in filled.items():
        fill(place, depth)
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = defaultdict(list)
    turns = [(way, depth) for _ in range(rounds) for way in PROGRAMS for depth in filled]
    for way, depth in track(turns, "opening", console=Console(stderr=True)):
        copy = folder / "copy"
        shutil.copytree(filled[depth], copy)
        for state in ("never consumed", "consumed before"):
            found[way, state, depth].append(opened(way, copy))
        shutil.rmtree(copy)
    return [_row(way, state, found) for way in PROGRAMS for state in ("never consumed", "consumed before")]


def _row(way: str, state: str, found: dict[tuple[str, str, int], list[tuple[float, float]]]) -> dict[str, Any]:
    shallow, deep = found[way, state, SHALLOW], found[way, state, DEEP]
    ratios = [many[0] / few[0] for few, many in zip(shallow, deep, strict=True)]
    seconds = {depth: float(np.median([wall for _, wall in found[way, state, depth]])) for depth in (SHALLOW, DEEP)}
    processor = {depth: float(np.median([cpu for cpu, _ in found[way, state, depth]])) for depth in (SHALLOW, DEEP)}
    return {
        "way": way,
        "state": state,
        "seconds": seconds,
        "processor_seconds": processor,
        "ratio": float(np.median(ratios)),
        "lowest": min(ratios),
        "highest": max(ratios),
    }


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objectstore_opening", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure (the temporary folder)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="objectstore-benchmark-", dir=options.folder) as name:
        rows = measure(options.rounds, Path(name))
    if options.json:
        print(json.dumps(rows))
    else:
        _print(rows)
    return 0


def _print(rows: list[dict[str, Any]]) -> None:
    columns = (
        "through",
        "queue",
        f"{SHALLOW:,}",
        f"{DEEP:,}",
        "CPU",
        "CPU",
        "CPU ratio",
        "lowest",
        "highest",
        "target",
    )
    table = Table(*columns, box=None)
    for row in rows:
        times = [f"{row[name][depth]:.3f} s" for name in ("seconds", "processor_seconds") for depth in (SHALLOW, DEEP)]
        ratios = (f"{row[name]:.2f}" for name in ("ratio", "lowest", "highest"))
        met = "met" if row["ratio"] <= TARGET else "MISSED"
        aim = "met" if row["ratio"] <= AIM else "missed"
        table.add_row(row["way"], row["state"], *times, *ratios, f"<= {TARGET:g}: {met} (aim {AIM:g}: {aim})")
    Console(width=130, highlight=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
