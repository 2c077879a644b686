"""Measurements of a broker: tasks per second, publishes per second, latency, and processor time when idle."""

import random
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from celery import Celery

from ami.transports.objectstore.broker.address import Address
from ami.transports.objectstore.broker.broker_storage import open_broker_storage
from ami.transports.objectstore.queue.commands import Enqueue
from benchmarks.brokers.application import TASK, Settings, make
from benchmarks.brokers.contenders import Contender
from benchmarks.brokers.worker import Worker, running
from benchmarks.objectstore import append_floor

#: From this depth on a folder is filled with copies of one published message, in batches.
COPIED_FROM, BATCH = 10_000, 500

#: Timeout of the first task, and the measured part of a long drain.
FIRST_SECONDS, DRAIN_SECONDS = 60.0, 8.0
PUBLISH_ROUNDS, FLOOR_SECONDS = 5, 0.1
LATENCY_SAMPLES, LATENCY_SECONDS = 100, 12.0


@dataclass(frozen=True)
class Responsiveness:
    """A broker's figures for single tasks; times in milliseconds, processor time in percent of one core."""

    contender: str
    publishes_per_second: float
    floor_per_second: float
    publish_ratio: float | None
    p50_ms: float
    p99_ms: float
    samples: int
    idle_percent: float


def drain(contender: Contender, depth: int) -> float:
    """Return the tasks per second that a worker begins on a queue of ``depth`` tasks, from the first to the last."""
    with contender.place() as settings:
        fill(contender, settings, depth)
        with running(settings) as worker:
            worker.await_ready()
            worker.await_tasks(1, FIRST_SECONDS)
            worker.await_tasks(depth, DRAIN_SECONDS)
            begun = worker.begun()
    if len(begun) < 2:
        raise RuntimeError(f"{contender.name}: a worker began {len(begun)} of {depth} tasks in {FIRST_SECONDS:g} s")
    return (len(begun) - 1) / (begun[-1] - begun[0])


def fill(contender: Contender, settings: Settings, depth: int) -> None:
    """Publish ``depth`` tasks without waiting for confirms; not measured."""
    app = make(replace(settings, options={**settings.options, "confirm_publish": False}))
    copies = depth - 1 if contender.is_folder and depth >= COPIED_FROM else 0
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(depth - copies):
            task = app.tasks[TASK].apply_async(producer=producer)
    if copies:
        _copy(settings, task.id, copies)
    app.close()


def _copy(settings: Settings, task_id: str, copies: int) -> None:
    """Copy the only message of a folder's queue, with a new task id each."""
    store = open_broker_storage(Address.parse(settings.url.removeprefix("objectstore+"))).store(settings.queue)
    with store.lock:
        [entry] = store.look().entries.values()
        published = store.payload(entry)
    for first in range(0, copies, BATCH):
        ids = [str(uuid.uuid4()) for _ in range(min(BATCH, copies - first))]
        store.commit([Enqueue(name, published.replace(task_id.encode(), name.encode())) for name in ids])


@dataclass(frozen=True)
class Publishes:
    """Medians over the rounds: publishes per second in one process, and the disk's appends per second.

    ``ratio`` is the median of each round's ratio to the contender's reference; None without one.
    """

    contender: str
    per_second: float
    floor_per_second: float
    ratio: float | None


def publish_rates(contenders: Sequence[Contender], seconds: float, rounds: int = PUBLISH_ROUNDS) -> list[Publishes]:
    """Measure every contender, its queue without consumers; in each round the contenders take turns."""
    with ExitStack() as stack:
        apps = [make(stack.enter_context(contender.place())) for contender in contenders]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="brokers-benchmark-")))
        floors: list[list[float]] = [[] for _ in apps]
        rates: list[list[float]] = [[] for _ in apps]
        for _ in range(rounds):
            for number, app in enumerate(apps):
                rates[number].append(_publish_rate(app, seconds / rounds))
                floors[number].append(append_floor(folder, FLOOR_SECONDS))
        for app in apps:
            app.close()
    names = [contender.name for contender in contenders]
    return [
        Publishes(
            contender.name,
            float(np.median(rate)),
            float(np.median(floor)),
            _ratio(rate, rates[names.index(contender.reference)]) if contender.reference in names else None,
        )
        for contender, rate, floor in zip(contenders, rates, floors, strict=True)
    ]


def _ratio(rates: Sequence[float], references: Sequence[float]) -> float:
    return float(np.median([rate / reference for rate, reference in zip(rates, references, strict=True)]))


def _publish_rate(app: Celery, seconds: float) -> float:
    with app.producer_pool.acquire(block=True) as producer:
        app.tasks[TASK].apply_async(producer=producer)  # Declares the queue.
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            app.tasks[TASK].apply_async(producer=producer)
            count += 1
        return count / (time.perf_counter() - began)


def responsiveness(
    contenders: Sequence[Contender], publish_seconds: float, idle_seconds: float
) -> list[Responsiveness]:
    """Measure every contender; all workers are started together and idle at the same time."""
    rates = publish_rates(contenders, publish_seconds)
    with ExitStack() as stack:
        places = [stack.enter_context(contender.place()) for contender in contenders]
        workers = [stack.enter_context(running(settings)) for settings in places]
        for worker in workers:
            worker.await_ready()
        time.sleep(2)
        waits = [latencies(worker) for worker in workers]
        time.sleep(1)
        began, before = time.monotonic(), [worker.cpu_seconds() for worker in workers]
        time.sleep(idle_seconds)
        passed = time.monotonic() - began
        idle = [
            100 * (worker.cpu_seconds() - seconds) / passed for worker, seconds in zip(workers, before, strict=True)
        ]
    return [_responsiveness(*found) for found in zip(contenders, rates, waits, idle, strict=True)]


def latencies(worker: Worker) -> list[float]:
    """Return the milliseconds from publish to the task's first line, one task at a time."""
    app = make(worker.settings)
    found: list[float] = []
    deadline = time.monotonic() + LATENCY_SECONDS
    with app.producer_pool.acquire(block=True) as producer:
        while len(found) < LATENCY_SAMPLES and time.monotonic() < deadline:
            known, published = worker.count(), time.monotonic()
            app.tasks[TASK].apply_async(producer=producer)
            while worker.count() == known:
                time.sleep(0.001)
            found.append(1000 * (worker.begun()[-1] - published))
            time.sleep(random.uniform(0.02, 0.08))
    app.close()
    # Without the first: caches are cold.
    return found[1:]


def _responsiveness(contender: Contender, publishes: Publishes, waits: list[float], idle: float) -> Responsiveness:
    p50, p99 = (float(np.percentile(waits, of)) for of in (50, 99))
    rates = publishes.per_second, publishes.floor_per_second, publishes.ratio
    return Responsiveness(contender.name, *rates, p50, p99, len(waits), idle)
