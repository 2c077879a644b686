"""``python -m benchmarks.failures``: what recording causes costs a failing task, and what lists of many failures take.

Run it on RabbitMQ and PostgreSQL::

    python -m provision run --private --need rabbitmq,postgres -- python -m benchmarks.failures

Both workers have one child and run the same number of tasks that raise; bare Celery logs and forgets them, this
project's are buried with their cause on record. They take turns; the ratio is the median of the pairs'. Then
``--rows`` failures and letters are written, and the lists that people wait for are timed beside a plain query of the
same rows. With ``--pairs 0`` that is all, which needs no broker: ``DATABASE_URL=sqlite:////tmp/rows.sqlite3``.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

from django.db import connection  # noqa: E402
from django.utils import timezone  # noqa: E402

from ami.celery.declaration import depth  # noqa: E402
from ami.queues import failures  # noqa: E402
from ami.queues.letters import found, rows, watch  # noqa: E402
from ami.queues.letters.selection import Selection  # noqa: E402
from ami.queues.models import Letter, TaskFailure  # noqa: E402
from benchmarks.overhead import QUEUE, bare_worker, our_worker  # noqa: E402
from tests.support.place import until  # noqa: E402

TASK = "tests.support.worker_tasks.basic.fail"
RATIO_TARGET, MOST_MS = 0.7, {"postgresql": 300, "sqlite": 800}
TRIES = 5


def rate(worker: Any, queue: str, task: str, number: int) -> float:
    """Return failing tasks per second."""
    with worker() as (_, __, app), app.connection_for_read() as link, link.channel() as channel:
        for count in (200, number):  # The first ones do not count.
            with app.producer_pool.acquire(block=True) as producer:
                for _ in range(count):
                    app.send_task(task, queue=queue, producer=producer, ignore_result=True)
            began, first = time.perf_counter(), depth(channel, queue)[0]
            until(lambda: depth(channel, queue)[0] == 0, 60 + number / 20, "the queue is empty")
        return float(first / (time.perf_counter() - began))


def fill(number: int) -> None:
    """Write so many failures of 50 causes, and as many letters."""
    TaskFailure.objects.all().delete()
    Letter.objects.all().delete()
    now = timezone.now()
    for start in range(0, number, 2000):
        numbers = range(start, min(start + 2000, number))
        TaskFailure.objects.bulk_create(_failure(each, now) for each in numbers)
        Letter.objects.bulk_create(_letter(each, now) for each in numbers)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _failure(number: int, now: Any) -> TaskFailure:
    task, cause = f"ami.tasks.task_{number % 10}", f"cause {number % 50}"
    return TaskFailure(
        task_id=f"id-{number}",
        retries=0,
        delivery=0,
        task=task,
        kind="error",
        exception="ValueError",
        message=f"No capture {number} of {cause}",
        cause=cause,
        cause_text=f"No capture <n> of {cause}",
        place="ami/tasks.py:1 in run",
        traceback="Traceback " * 100,
        failed_at=now - timedelta(seconds=number),
    )


def _letter(number: int, now: Any) -> Letter:
    died = now - timedelta(seconds=number)
    return Letter(
        identity=f"publish {number}",
        queue="antenna-ingest.dlq",
        task_id=f"id-{number}",
        task=f"ami.tasks.task_{number % 10}",
        reason="rejected",
        detail="the task failed, its retries used up",
        exception="ValueError",
        cause=f"cause {number % 50}",
        cause_text=f"No capture <n> of cause {number % 50}",
        place="ami/tasks.py:1 in run",
        arguments=f"({number},) {{}}",
        body=b"[[], {}, {}]" * 20,
        headers="{}",
        properties="{}",
        first_collected_at=died,
        collected_at=died,
    )


def milliseconds(what: Callable[[], Any]) -> float:
    """Return the median time of a few runs."""
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        what()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def dead(cause: str = "", search: str = "") -> Any:
    return Selection(cause=cause, search=search).rows()


def lists() -> dict[str, tuple[float, float]]:
    """Return the milliseconds of each list, and of a plain query of the same rows."""
    failed, letters = TaskFailure._meta.db_table, Letter._meta.db_table

    def plain(statement: str) -> Callable[[], Any]:
        def run() -> None:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                cursor.fetchall()

        return run

    newest = f"SELECT task_id, message FROM {failed} ORDER BY failed_at DESC, id DESC LIMIT 50"  # noqa: S608
    groups = f"SELECT cause, count(*) FROM {failed} GROUP BY cause"  # noqa: S608
    search = f"SELECT task_id FROM {failed} WHERE upper(message) LIKE '%CAPTURE 99999 %' LIMIT 50"  # noqa: S608
    by_cause = f"SELECT cause, count(*), min(collected_at) FROM {letters} WHERE state = 'dead' GROUP BY cause"  # noqa: S608
    latest = f"SELECT task_id FROM {letters} WHERE state = 'dead' ORDER BY id DESC LIMIT 50"  # noqa: S608
    text = f"SELECT task_id FROM {letters} WHERE upper(arguments) LIKE '%(99999,)%' LIMIT 50"  # noqa: S608
    hours = f"SELECT substr(CAST(collected_at AS text), 1, 13) AS hour, count(*) FROM {letters} GROUP BY hour"  # noqa: S608
    oldest = f"SELECT task_id FROM {letters} WHERE state = 'dead' ORDER BY id LIMIT 50"  # noqa: S608
    counted = f"SELECT queue, count(*) FROM {letters} WHERE state = 'dead' GROUP BY queue"  # noqa: S608
    pairs = {
        "failures, newest 50": (lambda: list(failures.found().defer("traceback")[:50]), newest),
        "failures by cause": (lambda: failures.causes(failures.found()), groups),
        "failures, search": (lambda: list(failures.found(search="capture 99999 ").defer("traceback")[:50]), search),
        "letters, oldest 50": (lambda: rows.oldest("antenna-ingest.dlq", 50), oldest),
        "letters per queue": (rows.counts, counted),
        "letters, newest 50": (lambda: list(dead().order_by("-pk").defer(*found.HEAVY)[:50]), latest),
        "letters by cause": (lambda: found.groups(dead()), by_cause),
        "letters of a cause": (lambda: list(dead("cause 7").defer(*found.HEAVY)[:50]), latest),
        "letters, search": (lambda: list(dead(search="(99999,)").defer(*found.HEAVY)[:50]), text),
        "letters by the hour": (lambda: found.over_time(dead()), hours),
        "signs of an hour": (lambda: watch.signs(60), newest),
    }
    return {name: (milliseconds(ours), milliseconds(plain(sql))) for name, (ours, sql) in pairs.items()}


def main() -> int:
    """Print the tables; return 1 where a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failures", description=__doc__)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity=0"], check=True)
    kinds = {"ours": (our_worker, QUEUE, TASK), "bare": (bare_worker, "bare", "failing")}
    pairs = []
    for number in range(options.pairs):
        order = sorted(kinds, reverse=bool(number % 2))
        pairs.append({name: rate(*kinds[name], options.tasks) for name in order})
    ratio = statistics.median(pair["ours"] / pair["bare"] for pair in pairs) if pairs else None
    fill(options.rows)
    times = lists()
    most = MOST_MS[connection.vendor]
    if options.json:
        print(json.dumps({"pairs": pairs, "ratio": ratio, "milliseconds": times}))
    else:
        for pair in pairs:
            print(f"failing tasks/s: ours {pair['ours']:.0f}, bare Celery {pair['bare']:.0f}")
        if ratio is not None:
            print(f"ratio {ratio:.2f}, at least {RATIO_TARGET}")
        for name, (ours, plain) in times.items():
            print(f"{name:24}{ours:8.1f} ms   plain query {plain:8.1f} ms   at most {most} ms")
    too_slow = any(ours > most for ours, _ in times.values())
    return int(too_slow or (ratio is not None and ratio < RATIO_TARGET))


if __name__ == "__main__":
    sys.exit(main())
