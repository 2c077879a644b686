"""How long a fresh process takes until it has a queue's first message.

A queue of 10,000 messages is the reference of one of 100,000, round by round. "Never consumed": publishers filled it,
so all of its journal is read. "Consumed before": a consumer had it open and died. Imports are not measured. The ratio
is that of processor times: what others do on the machine changes it least.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from kombu import Connection, Queue
from rich.console import Console
from rich.progress import track

from ami.transports import register
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.factory import open_folder
from benchmarks.frame import Figure
from tests.support.place import ROOT

QUEUE, ENTRYPOINT = "opening", "work"
SHALLOW, DEEP = 10_000, 100_000
#: How many times as long the deep queue may take.
TARGET = 10.0
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


def measure(rounds: int, folder: Path) -> Iterator[Figure]:
    """Yield the figure of each way and state; in each round the depths take turns."""
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
    for (way, state, depth), deep in found.items():
        if depth == DEEP:
            pairs = list(zip(found[way, state, SHALLOW], deep, strict=True))
            few, many = (float(np.median([pair[of][0] for pair in pairs])) for of in (0, 1))
            ratio = float(np.median([late[0] / early[0] for early, late in pairs]))
            what = f"open {DEEP:,} by {way}, {state}"
            yield Figure(what, "CPU s", many, f"{SHALLOW:,}", few, ratio, at_most=TARGET)


def figures(quick: bool) -> Iterator[Figure]:
    """Yield them from a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="objectstore-benchmark-") as name:
        yield from measure(1 if quick else 5, Path(name))
