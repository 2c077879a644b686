"""``python -m benchmarks.operations``: what following wishes costs a worker, idle and with tasks that do nothing.

Run it on RabbitMQ and PostgreSQL::

    python -m provision run --private --need rabbitmq,postgres -- python -m benchmarks.operations --before CHECKOUT

``--before`` is a checkout of an earlier commit; its worker runs the same tasks in turn, on the same services. Without
it the rates are printed without a reference. Each pair changes which of the two is first; the ratio is the median of
the pairs', and beside the rate stands the processor time per task, which a busy machine disturbs less. Idle: the
parent's processor time and the database's statements over a minute (its transactions without those that open a
connection), less those of the same minute without a worker.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

from django.db import connection  # noqa: E402

from ami.celery.declaration import depth  # noqa: E402
from benchmarks.overhead import processor_seconds, run  # noqa: E402
from tests.support.pid_namespace import descendants  # noqa: E402
from tests.support.place import new_place, until  # noqa: E402

QUEUE, TASK = "antenna-interactive", "tests.support.worker_tasks.basic.succeed"
#: The worker measured alone holds the sampler's lease, whose holder may send 15 statements more.
RATE_TARGET, CPU_TARGET, STATEMENTS_TARGET = 0.95, 0.5, 15 + 15


@dataclass(frozen=True)
class Idle:
    """Per cent of a core, and the database's statements and new connections in a minute."""

    parent_percent: float
    statements: float
    connections: float


@dataclass(frozen=True)
class Rate:
    """Tasks per second, and the processor time of the worker and its children in milliseconds per task."""

    per_second: float
    processor_ms: float


@contextmanager
def worker(checkout: str = "") -> Any:
    """Start the worker of one queue, with two children, from this checkout or from another one."""
    with new_place("operations") as place:
        place.environment.pop("ANTENNA_JOURNAL_DIR")
        place.environment |= {"ANTENNA_INTERACTIVE_MAX_TASKS_PER_CHILD": "1000000"}
        place.queues("declare")
        folder = ["env", "-C", checkout, f"PYTHONPATH={checkout}"] if checkout else []
        yield place, lambda: place.start([*folder, sys.executable, "-m", "ami.topology", "worker", QUEUE])


def rate(number: int, checkout: str = "") -> Rate:
    """Run ``number`` messages that waited."""
    with worker(checkout) as (place, start), place.app.connection_for_read() as link, link.channel() as channel:
        with place.app.producer_pool.acquire(block=True) as producer:
            for _ in range(number):
                place.app.send_task(TASK, queue=QUEUE, producer=producer, ignore_result=True)
        process = start()
        first = until(lambda: left if (left := depth(channel, QUEUE)[0]) < number * 0.95 else 0, 120, "tasks run")
        began, spent = time.perf_counter(), tree_seconds(process.popen.pid)
        until(lambda: depth(channel, QUEUE)[0] == 0, 60 + number / 50, "the queue is empty")
        seconds, used = time.perf_counter() - began, tree_seconds(process.popen.pid) - spent
        return Rate(first / seconds, 1000 * used / first)


def tree_seconds(pid: int) -> float:
    """Return the processor time of a process and of all that it has started."""
    return sum(processor_seconds(each) for each in (pid, *descendants(pid)))


def pair(number: int, checkout: str, *, is_first: bool) -> tuple[Rate, Rate]:
    """Return the rates of this checkout and of the other one, measured after each other."""
    if is_first:
        now = rate(number)
        return now, rate(number, checkout)
    before = rate(number, checkout)
    return rate(number), before


def idle(seconds: int) -> Idle:
    """Measure a worker that runs nothing."""
    before = database_counts()
    time.sleep(seconds)
    alone = [late - early for late, early in zip(database_counts(), before, strict=True)]
    with worker() as (place, start):
        process = start()
        until(lambda: " ready." in process.text, 120, "the worker is ready")
        run(place.app, QUEUE, TASK, 20)
        time.sleep(10)
        spent, before = processor_seconds(process.popen.pid), database_counts()
        time.sleep(seconds)
        used = processor_seconds(process.popen.pid) - spent
        counts = zip(database_counts(), before, alone, strict=True)
        transactions, opened = ((late - early - own) * 60 / seconds for late, early, own in counts)
    return Idle(100 * used / seconds, transactions - opened, opened)


def database_counts() -> tuple[int, int]:
    """Return how many transactions the database has ended, and how many connections it has taken, so far."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT xact_commit + xact_rollback, sessions FROM pg_stat_database WHERE datname = current_database()"
        )
        transactions, sessions = cursor.fetchone()
        return int(transactions), int(sessions)


def main() -> int:
    """Print the table; return 1 where a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operations", description=__doc__)
    parser.add_argument("--before", default="", metavar="CHECKOUT", help="a checkout of the commit to compare with")
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--idle-seconds", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity=0"], check=True)
    found: dict[str, Any] = {}
    if options.before:
        pairs = [pair(options.tasks, options.before, is_first=bool(number % 2)) for number in range(options.pairs)]
        found["now"], found["before"] = (mean(each) for each in zip(*pairs, strict=True))
        found["ratio"] = statistics.median(now.per_second / before.per_second for now, before in pairs)
        found["processor_ratio"] = statistics.median(before.processor_ms / now.processor_ms for now, before in pairs)
    else:
        found["now"] = mean([rate(options.tasks)])
    found["idle"] = asdict(idle(options.idle_seconds))
    print(json.dumps(found) if options.json else table(found))
    missed = max(found.get("ratio", 1), found.get("processor_ratio", 1)) < RATE_TARGET
    over = found["idle"]["parent_percent"] > CPU_TARGET or found["idle"]["statements"] > STATEMENTS_TARGET
    return int(missed or over)


def mean(rates: Any) -> dict[str, float]:
    return {name: statistics.mean(asdict(each)[name] for each in rates) for name in ("per_second", "processor_ms")}


def table(found: dict[str, Any]) -> str:
    """Return the figures beside their targets."""
    now, before, told = found["now"], found.get("before"), found["idle"]
    lines = [f"{'':28}{'now':>8}{'before':>8}{'ratio':>8}  target"]
    for title, name, ratio in (
        ("no-op tasks/s", "per_second", "ratio"),
        ("processor ms/task", "processor_ms", "processor_ratio"),
    ):
        reference = f"{before[name]:8.2f}{found[ratio]:8.3f}  at least {RATE_TARGET}" if before else ""
        lines.append(f"{title:28}{now[name]:8.2f}{reference}")
    lines.append(f"{'idle parent, % of a core':28}{told['parent_percent']:8.2f}{'':16}  at most {CPU_TARGET}")
    lines.append(f"{'idle, statements/min':28}{told['statements']:8.0f}{'':16}  at most {STATEMENTS_TARGET}")
    lines.append(f"{'idle, new connections/min':28}{told['connections']:8.0f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
