"""``python -m benchmarks.brokers.delays``: how late delayed tasks start, and what waiting ones cost.

Lateness is the time from a task's ETA to its first line, of tasks that are due one after the other. The reference is
RabbitMQ as deployed, with its native delays, in the same run. What waiting costs is measured on two workers of folders
at the same time, one of them with many delayed messages.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from celery import Celery
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    declare_native_delayed_delivery_exchanges_and_queues,
)
from rich.console import Console
from rich.table import Table

from ami.celery.broker_kind import kind_of
from ami.celery.declaration import DELAY_QUEUE_TYPE
from ami.transports.objectstore.broker.address import Address
from ami.transports.objectstore.broker.broker_storage import BrokerStorage, open_broker_storage
from ami.transports.objectstore.broker.cascade import Cascade
from ami.transports.objectstore.broker.wheel import Delayed
from benchmarks.brokers.application import TASK, Settings, make
from benchmarks.brokers.contenders import QUORUM_AS_DEPLOYED, Contender, contenders, virtual_host
from benchmarks.brokers.worker import Worker, running

FOLDER = "folder, late ack"

#: The first task is due so long after the first publish, and the next ones after it, each so long after the one before.
AHEAD_SECONDS, BETWEEN_SECONDS = 5.0, 0.02

#: The most that the folder's p99 may exceed the reference's.
TARGET_MS = 50.0
IDLE_TARGET_PERCENT = 1.0

#: Waiting messages are due an hour from now, within two hours.
HOUR_SECONDS = 3600.0
AT_ONCE = 1_000


@dataclass(frozen=True)
class Lateness:
    """Milliseconds from ETA to start."""

    contender: str
    p50_ms: float
    p99_ms: float
    most_ms: float
    tasks: int


@dataclass(frozen=True)
class Waiting:
    """A worker of a folder with so many delayed messages: processor time in percent of a core, memory of its parent."""

    messages: int
    idle_percent: float
    memory_mib: float


def lateness(contender: Contender, count: int) -> Lateness:
    """Publish delayed tasks to an idle worker and measure when they start."""
    with contender.place() as settings, running(settings) as worker:
        worker.await_ready()
        app = make(settings)
        with app.producer_pool.acquire(block=True) as producer:
            app.tasks[TASK].apply_async(producer=producer)
            worker.await_tasks(1, 60)
            _declare_delays(app)
            due = []
            first = time.monotonic() + AHEAD_SECONDS
            for number in range(count):
                due.append(first + number * BETWEEN_SECONDS)
                app.tasks[TASK].apply_async(producer=producer, countdown=due[-1] - time.monotonic())
        app.close()
        worker.await_tasks(count + 1, due[-1] - time.monotonic() + 30)
        begun = worker.begun()[1:]
    if len(begun) < count:
        raise RuntimeError(f"{contender.name}: {len(begun)} of {count} delayed tasks started")
    # The tasks are alike: the first to start is compared with the first that was due.
    late = [1000 * (start - moment) for start, moment in zip(begun, due, strict=True)]
    p50, p99 = (float(np.percentile(late, of)) for of in (50, 99))
    return Lateness(contender.name, p50, p99, max(late), count)


def _declare_delays(app: Celery) -> None:
    """Declare RabbitMQ's delay exchanges, as ``queues declare`` does."""
    with app.connection_for_write() as connection:
        if kind_of(connection).delay_exchanges:
            declare_native_delayed_delivery_exchanges_and_queues(connection, DELAY_QUEUE_TYPE)
            for queue in app.amqp.queues.values():
                bind_queue_to_native_delayed_delivery_exchange(connection, queue)


def waiting(contender: Contender, messages: int, seconds: float) -> list[Waiting]:
    """Measure two idle workers at the same time, without and with so many delayed messages."""
    with ExitStack() as stack:
        counts = [0, messages]
        workers = [stack.enter_context(_filled(contender, count)) for count in counts]
        for worker in workers:
            worker.await_ready()
        time.sleep(3)
        began, before = time.monotonic(), [worker.cpu_seconds() for worker in workers]
        time.sleep(seconds)
        passed = time.monotonic() - began
        spent = [worker.cpu_seconds() - earlier for worker, earlier in zip(workers, before, strict=True)]
        memory = [_memory_mib(worker) for worker in workers]
    return [Waiting(count, 100 * each / passed, mib) for count, each, mib in zip(counts, spent, memory, strict=True)]


@contextmanager
def _filled(contender: Contender, count: int) -> Iterator[Worker]:
    with contender.place() as settings:
        _fill(settings, count)
        with running(settings) as worker:
            yield worker


def _fill(settings: Settings, count: int) -> None:
    """Delay copies of one published task."""
    if not count:
        return
    app = make(settings)
    app.tasks[TASK].apply_async(countdown=HOUR_SECONDS)
    app.close()
    broker = open_broker_storage(Address.parse(settings.url.removeprefix("objectstore+")))
    one = _only(broker)
    for first in range(1, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        broker.wheel.put(
            [one._replace(id=f"{one.id}-{number}", due=one.due + number % (2 * HOUR_SECONDS)) for number in numbers]
        )


def _only(broker: BrokerStorage) -> Delayed:
    found: list[Delayed] = []
    [slot] = broker.wheel.slots()
    cascade = Cascade(found.extend)
    broker.wheel.store(slot).stream(cascade)
    cascade.flush()
    return found[0]


def _memory_mib(worker: Worker) -> float:
    status = Path(f"/proc/{worker.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def main() -> int:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.brokers.delays", description=__doc__)
    parser.add_argument("--tasks", type=int, default=500, help="delayed tasks per broker (500)")
    parser.add_argument("--waiting", type=int, default=100_000, help="delayed messages of the second table (100000)")
    parser.add_argument("--idle-seconds", type=float, default=20, help="duration of the idle measurement (20)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with virtual_host() as url:
        entered = {one.name: one for one in contenders(url)}
        late = [lateness(entered[name], options.tasks) for name in (QUORUM_AS_DEPLOYED, FOLDER)]
        costs = waiting(entered[FOLDER], options.waiting, options.idle_seconds)
    if options.json:
        print(json.dumps({"lateness": late, "waiting": costs}, default=asdict))
    else:
        _print(late, costs)
    return 0


def _print(late: list[Lateness], costs: list[Waiting]) -> None:
    console = Console(width=120, highlight=False)
    table = Table("broker", "late p50 ms", "p99 ms", "most ms", "tasks", "target", box=None)
    reference, *_ = late
    for one in late:
        beyond = one.p99_ms - reference.p99_ms
        verdict = f"p99 <= + {TARGET_MS:g} ms: {beyond:+.1f}, {'met' if beyond <= TARGET_MS else 'MISSED'}"
        figures = (f"{value:.1f}" for value in (one.p50_ms, one.p99_ms, one.most_ms))
        table.add_row(one.contender, *figures, str(one.tasks), "" if one is reference else verdict)
    console.print(table)
    console.print()
    table = Table("folder with delayed messages", "idle, % of a core", "memory, MiB", "target", box=None)
    for cost in costs:
        verdict = f"< {IDLE_TARGET_PERCENT:g} %: {'met' if cost.idle_percent < IDLE_TARGET_PERCENT else 'MISSED'}"
        table.add_row(f"{cost.messages:,}", f"{cost.idle_percent:.2f}", f"{cost.memory_mib:.1f}", verdict)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
