"""``python -m benchmarks.overhead``: processor time per task and memory of a worker, beside bare Celery.

Run it on a RabbitMQ::

    python -m provision run --private --need rabbitmq -- python -m benchmarks.overhead

Both workers are started as deployed, with one child, on a quorum queue with prefetch 1, late acknowledgement and
``-E``, and run the same number of tasks that do nothing; they take turns. This project's runs once more with a queue
bound to the events: it publishes those of tasks only to a reader, and bare Celery always. The processor time is that of
/proc/PID/stat, after tasks that do not count. Memory is read after the last task: ``shared`` is what a process maps
together with others, ``own`` what the kernel keeps for it alone. Web and beat, and the workers of the other queues,
are printed without a reference.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

from celery import Celery  # noqa: E402
from celery.events.event import get_exchange  # noqa: E402
from kombu import Queue  # noqa: E402

from ami.celery.declaration import depth  # noqa: E402
from tests.support.brokers import RABBITMQ, new_broker  # noqa: E402
from tests.support.place import new_place, until  # noqa: E402
from tests.support.web_server import children, web_of  # noqa: E402

if TYPE_CHECKING:
    from tests.support.place import Place, Process

QUEUE, TASK = "antenna-interactive", "tests.support.worker_tasks.basic.succeed"
OTHERS = ("antenna-ingest", "antenna-housekeeping", "antenna")
OURS, READ, BARE = "Antenna", "Antenna, events read", "bare Celery"
CPU_TARGET, CHILD_TARGET = 1.5, 0.5
WARM_UP = 200
TICKS = os.sysconf("SC_CLK_TCK")

#: The proportional share of a child after 1,000 tasks before its imports and garbage were looked at.
CHILD_BEFORE_MIB = 68.0

PROGRAM = """
import os
from celery import Celery
from kombu import Queue

app = Celery("bare", broker=os.environ["BARE_BROKER"])
app.conf.update(
    task_acks_late=True, worker_prefetch_multiplier=1, task_ignore_result=True, task_default_queue="bare",
    task_queues=[Queue("bare", durable=True, queue_arguments={"x-queue-type": "quorum"})],
    broker_connection_retry_on_startup=True,
)

@app.task(name="nothing")
def nothing(_=None):
    pass

@app.task(name="failing")
def failing(_=None):
    raise ValueError("at once")
"""


@dataclass(frozen=True)
class Memory:
    """Of one process, in MiB: resident, its proportional share, and what is its own alone."""

    process: str
    rss_mib: float
    pss_mib: float
    own_mib: float


@dataclass(frozen=True)
class Measured:
    """Processor milliseconds per task of a worker's parent and child, and their memory afterwards."""

    worker: str
    parent_ms: float
    child_ms: float
    memory: list[Memory]

    @property
    def both_ms(self) -> float:
        return self.parent_ms + self.child_ms


def processor_seconds(pid: int) -> float:
    """Return what a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_of(pid: int, name: str) -> Memory:
    """Return the memory of a process as the kernel counts it."""
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        key, value = line.split()[:2]
        sizes[key.rstrip(":")] = int(value)
    own = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return Memory(name, sizes["Rss"] / 1024, sizes["Pss"] / 1024, own / 1024)


@contextmanager
def our_worker() -> Iterator[tuple[Place, Process, Celery]]:
    """Start the worker of one queue by the deployment's command."""
    with new_place("overhead") as place:
        place.environment.pop("ANTENNA_JOURNAL_DIR")
        # One child for all tasks, as the reference has.
        place.environment |= {
            "ANTENNA_INTERACTIVE_CONCURRENCY": "1",
            "ANTENNA_INTERACTIVE_MAX_TASKS_PER_CHILD": "1000000",
        }
        place.queues("declare")
        process = started(place, [sys.executable, "-m", "ami.topology", "worker", QUEUE])
        yield place, process, place.app


@contextmanager
def read_worker() -> Iterator[tuple[Place, Process, Celery]]:
    """Start the same worker with a queue for its events, which keeps a few of them."""
    with (
        our_worker() as (place, process, app),
        app.connection_for_read() as connection,
        connection.channel() as channel,
    ):
        arguments = {"x-max-length": 10}
        Queue("events", get_exchange(connection), "#", exclusive=True, queue_arguments=arguments)(channel).declare()
        yield place, process, app


@contextmanager
def bare_worker() -> Iterator[tuple[Place, Process, Celery]]:
    """Start a worker of an application that has nothing of this project."""
    with (
        new_place("bare") as place,
        tempfile.TemporaryDirectory() as folder,
        new_broker(RABBITMQ, "bare", Path(folder)) as url,
    ):
        (Path(folder) / "bare.py").write_text(PROGRAM)
        for name in ("DJANGO_SETTINGS_MODULE", "CELERY_BROKER_URL"):
            place.environment.pop(name)
        app = Celery("bare", set_as_current=False)
        app.conf.update(broker_read_url=url, broker_write_url=url)  # Celery prefers the environment to ``broker``.
        app.conf.task_queues = [Queue("bare", durable=True, queue_arguments={"x-queue-type": "quorum"})]
        app.conf.task_default_queue = "bare"
        argv = [sys.executable, "-m", "celery", "-A", "bare", "worker", "-c", "1", "-E", "-l", "info"]
        environment = {"BARE_BROKER": url, "PYTHONPATH": folder}
        yield place, started(place, argv, **environment), app


def started(place: Place, argv: list[str], **environment: str) -> Process:
    """Start a worker and return it when it is ready."""
    process = place.start(argv, **environment)

    def is_ready() -> bool:
        if process.popen.poll() is not None:
            raise SystemExit(f"The worker stopped:\n{process.text[-4000:]}")
        return " ready." in process.text

    until(is_ready, 120, "the worker is ready")
    return process


def run(app: Celery, queue: str, task: str, number: int) -> None:
    """Publish so many tasks, and return when all have run."""
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(number):
            app.send_task(task, queue=queue, producer=producer, ignore_result=True)
    with app.connection_for_read() as connection, connection.channel() as channel:
        until(lambda: depth(channel, queue)[0] == 0, 60 + number / 50, "the queue is empty")


def measure(name: str, worker: Any, queue: str, task: str, number: int) -> Measured:
    """Measure one worker from its start to its end."""
    with worker() as (_, process, app):
        run(app, queue, task, WARM_UP)
        [child] = until(lambda: children(process.popen.pid), 30, "the worker has a child")
        pids = (process.popen.pid, child)
        before = [processor_seconds(pid) for pid in pids]
        run(app, queue, task, number)
        spent = [processor_seconds(pid) - then for pid, then in zip(pids, before, strict=True)]
        memory = [memory_of(pids[0], f"{name}, parent"), memory_of(pids[1], f"{name}, child")]
    return Measured(name, *(1000 * each / number for each in spent), memory)


def others() -> list[Memory]:
    """Return the memory of web, beat and the other workers, when they have started."""
    found = []
    with new_place("processes") as place:
        place.environment.pop("ANTENNA_JOURNAL_DIR")
        place.queues("declare")
        if place.start([sys.executable, "manage.py", "migrate"]).popen.wait(300):  # Beat refuses a database without.
            raise SystemExit("The migration failed")
        web = web_of(place)
        found += [memory_of(web.process.popen.pid, "web, master"), memory_of(web.workers[0], "web, worker")]
        beat = place.start([sys.executable, "-m", "ami.topology", "beat"])
        until(lambda: "beat: Starting" in beat.text, 60, "beat has started")
        found.append(memory_of(beat.popen.pid, "beat"))
        for queue in OTHERS:
            process = started(place, [sys.executable, "-m", "ami.topology", "worker", queue])
            [child, *_] = until(lambda pid=process.popen.pid: children(pid), 30, "the worker has a child")
            found += [memory_of(process.popen.pid, f"{queue}, parent"), memory_of(child, f"{queue}, child")]
            process.stop()
    return found


def median(rounds: list[Measured]) -> Measured:
    """Return the median of each processor time, and the last round's memory."""
    last = rounds[-1]
    times = (statistics.median(getattr(each, name) for each in rounds) for name in ("parent_ms", "child_ms"))
    return Measured(last.worker, *times, last.memory)


def print_tables(workers: list[Measured], processes: list[Memory]) -> None:
    """Print the processor times beside each other, then every process's memory."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=110)
    table = Table("worker", "parent ms/task", "child ms/task", "both", "of bare Celery", "at most")
    bare = workers[-1]
    for each in workers:
        ratio, target = f"{each.both_ms / bare.both_ms:.2f}", "" if each is bare else f"{CPU_TARGET:g}"
        table.add_row(
            each.worker, f"{each.parent_ms:.2f}", f"{each.child_ms:.2f}", f"{each.both_ms:.2f}", ratio, target
        )
    console.print(table)
    table = Table("process", "RSS MiB", "PSS MiB", "own MiB", title="memory after the tasks")
    for one in [*(one for each in workers for one in each.memory), *processes]:
        table.add_row(one.process, f"{one.rss_mib:.0f}", f"{one.pss_mib:.0f}", f"{one.own_mib:.1f}")
    console.print(table)


def main() -> int:
    """Measure, print the tables, and return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of 1,000 tasks instead of five of 2,000")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rounds, number = (1, 1_000) if options.quick else (5, 2_000)
    kinds = {OURS: (our_worker, QUEUE, TASK), READ: (read_worker, QUEUE, TASK), BARE: (bare_worker, "bare", "nothing")}
    found: dict[str, list[Measured]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, how in kinds.items():
            found[name].append(measure(name, *how, number))
    workers, processes = [median(each) for each in found.values()], others()
    if options.json:
        print(
            json.dumps({"workers": [asdict(one) for one in workers], "processes": [asdict(one) for one in processes]})
        )
    else:
        print_tables(workers, processes)
    *ours, bare = workers
    is_slow = any(each.both_ms > CPU_TARGET * bare.both_ms for each in ours)
    return int(is_slow or ours[0].memory[1].pss_mib > CHILD_TARGET * CHILD_BEFORE_MIB)


if __name__ == "__main__":
    raise SystemExit(main())
