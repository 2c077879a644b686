"""``python -m benchmarks.telemetry``: what the page's figures cost after 30 days of samples, and what counting costs.

Run it on RabbitMQ and PostgreSQL::

    python -m provision run --private --need rabbitmq,postgres -- python -m benchmarks.telemetry

The database gets samples as the sampler writes them: raw ones of two days, minutes of 30 days, and each minute's
histograms. Then the snapshot is taken, served and shown, and charts are read, each many times; the page itself adds its
templates (`benchmarks.console`). The cost of watching is that of a snapshot every two seconds, however many watch. A
worker of the commit before tasks were counted, or of the checkout that ``--before`` names, then runs the same tasks in
turn (`benchmarks.pairs`); ``--pairs 0`` leaves that out.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

from celery import current_app  # noqa: E402
from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402

from ami.celery.declaration import declare  # noqa: E402
from ami.celery.task_times import BUCKETS  # noqa: E402
from ami.telemetry import series, shared_values  # noqa: E402
from ami.telemetry.models import Sample, TaskHistogram  # noqa: E402
from ami.telemetry.snapshots import live, shared  # noqa: E402
from ami.telemetry.snapshots.shape import as_json, from_json  # noqa: E402
from benchmarks import pairs  # noqa: E402

PAGE_TARGET_MS, WATCH_TARGET_PERCENT, RATE_TARGET, STATEMENTS_TARGET = 300.0, 2.0, 0.98, 15
WORKERS, TASKS = 8, 5
WATCHED_SECONDS = 2.0
#: It came with the counting of tasks.
COUNTING = "ami/celery/task_times.py"

SAMPLES = """
INSERT INTO telemetry_sample (kind, name, resolution, at, waiting, running, consumers, started, ended, failed,
    memory_used_bytes, memory_limit_bytes, children, held, version)
SELECT %s, %s, %s, at, 5, 2, 1, 3, 3, 0, 1000000, 2000000, 4, 0, ''
FROM generate_series(now() - %s::interval, now(), %s::interval) AS at
"""
HISTOGRAMS = """
INSERT INTO telemetry_taskhistogram (queue, task, resolution, at, started, succeeded, failed, retried, wait_seconds,
    run_seconds, waits, runs)
SELECT %s, %s, %s, date_trunc(%s, at), 10, 9, 1, 0, 1, 1, %s, %s
FROM generate_series(now() - %s::interval, now(), %s::interval) AS at
"""


def seed(days: int = 30) -> int:
    """Write samples and histograms of so many days, if they are not there; return how many rows there are."""
    span = f"{days} days"
    queues = [row.queue for row in settings.ANTENNA_TOPOLOGY.workloads]
    names = [("queue", queue) for queue in queues] + [("worker", f"worker-{each}@a") for each in range(WORKERS)]
    buckets = json.dumps([1] * BUCKETS)
    if not Sample.objects.exists():
        with connection.cursor() as cursor:
            for kind, name in names:
                cursor.execute(SAMPLES, [kind, name, 5, "48 hours", "5 seconds"])
                cursor.execute(SAMPLES, [kind, name, 60, span, "1 minute"])
                cursor.execute(SAMPLES, [kind, name, 3600, "700 days", "1 hour"])
            for queue in queues:
                for task in range(TASKS):
                    for resolution, unit in ((60, "minute"), (3600, "hour")):
                        values = [queue, f"task-{task}", resolution, unit, buckets, buckets, span, f"1 {unit}"]
                        cursor.execute(HISTOGRAMS, values)
            cursor.execute("ANALYZE telemetry_sample, telemetry_taskhistogram")
    return Sample.objects.count() + TaskHistogram.objects.count()


def measured(function: Callable[[], Any], times: int) -> dict[str, float]:
    """Return the median and p95 in milliseconds, the processor time of this process, and the statements."""
    function()
    with CaptureQueriesContext(connection) as queries:
        function()
    took, spent = [], time.process_time()
    for _ in range(times):
        began = time.perf_counter()
        function()
        took.append(1000 * (time.perf_counter() - began))
    used = 1000 * (time.process_time() - spent) / times
    took.sort()
    p95 = took[min(len(took) - 1, int(len(took) * 0.95))]
    return {"median_ms": statistics.median(took), "p95_ms": p95, "used_ms": used, "statements": len(queries)}


def reads(times: int) -> dict[str, dict[str, float]]:
    """Measure what pages read."""
    queue, topology = "antenna-ingest", settings.ANTENNA_TOPOLOGY
    taken = as_json(live.take(current_app, topology))

    def served() -> None:
        shared.forget()
        from_json(shared_values.current("snapshot-served", 3600, lambda _: taken).value)

    return {
        "snapshot, taken": measured(lambda: live.take(current_app, topology), times),
        "snapshot, served": measured(served, times),
        "queue, 1 h": measured(lambda: series.queue_series(queue, 3600), times),
        "queue, 24 h": measured(lambda: series.queue_series(queue, 86400), times),
        "queue, 7 d": measured(lambda: series.queue_series(queue, 7 * 86400), times),
        "worker, 24 h": measured(lambda: series.worker_series("worker-1@a", 86400), times),
    }


def main() -> int:
    """Print the table; return 1 where a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description=__doc__)
    parser.add_argument("--before", default="", metavar="CHECKOUT", help="a checkout of the commit to compare with")
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity=0"], check=True)
    with current_app.connection_for_write() as link:
        declare(settings.ANTENNA_TOPOLOGY, link)
    found: dict[str, Any] = {"rows": seed(), "reads": reads(options.times)}
    found["watching_percent"] = found["reads"]["snapshot, taken"]["used_ms"] / (10 * WATCHED_SECONDS)
    compared = None
    if options.pairs:
        with pairs.checkout_before(options.before, COUNTING) as checkout:
            compared = pairs.measured(options.tasks, options.pairs, checkout)
        found["pairs"] = compared.as_json()
    print(
        json.dumps(found)
        if options.json
        else "\n".join([table(found), *(compared.lines(RATE_TARGET) if compared else ())])
    )
    wrong = [
        f"{name}: p95 {each['p95_ms']:.0f} ms"
        for name, each in found["reads"].items()
        if each["p95_ms"] > PAGE_TARGET_MS
    ]
    wrong += [
        f"{name}: {each['statements']} statements"
        for name, each in found["reads"].items()
        if each["statements"] > STATEMENTS_TARGET
    ]
    if found["watching_percent"] > WATCH_TARGET_PERCENT:
        wrong.append(f"watching takes {found['watching_percent']:.2f}% of a core")
    wrong += compared.missed(RATE_TARGET) if compared else []
    for each in wrong:
        print(f"MISSED: {each}", file=sys.stderr)
    return int(bool(wrong))


def table(found: dict[str, Any]) -> str:
    """Return the figures beside their targets."""
    lines = [f"{found['rows']:,} rows", f"{'':20}{'median ms':>10}{'p95 ms':>10}{'CPU ms':>10}{'statements':>12}"]
    for name, each in found["reads"].items():
        lines.append(
            f"{name:20}{each['median_ms']:10.1f}{each['p95_ms']:10.1f}{each['used_ms']:10.1f}{each['statements']:12.0f}"
        )
    lines.append(f"{'target':20}{'':10}{PAGE_TARGET_MS:10.0f}{'':10}{STATEMENTS_TARGET:12}")
    lines.append(f"watching: {found['watching_percent']:.2f}% of a core, at most {WATCH_TARGET_PERCENT:g}%")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
