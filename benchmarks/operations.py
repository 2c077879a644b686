"""``python -m benchmarks.operations``: what following wishes costs a worker, idle and with tasks that do nothing.

Run it on RabbitMQ and PostgreSQL::

    python -m provision run --private --need rabbitmq,postgres -- python -m benchmarks.operations --before CHECKOUT

``--before`` is a checkout of an earlier commit; its worker runs the same tasks in turn, on the same services
(`benchmarks.pairs`). Without it one rate is printed without a reference. Idle: the parent's processor time and the
database's statements over a minute (its transactions without those that open a connection), less those of the same
minute without a worker.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

from django.db import connection  # noqa: E402

from benchmarks import pairs  # noqa: E402
from benchmarks.overhead import QUEUE, TASK, processor_seconds, run  # noqa: E402
from tests.support.place import until  # noqa: E402

#: The worker measured alone holds the sampler's lease, whose holder may send 18 statements more.
RATE_TARGET, CPU_TARGET, STATEMENTS_TARGET = 0.95, 0.5, 15 + 18


@dataclass(frozen=True)
class Idle:
    """Per cent of a core, and the database's statements and new connections in a minute."""

    parent_percent: float
    statements: float
    connections: float


def idle(seconds: int) -> Idle:
    """Measure a worker that runs nothing."""
    before = database_counts()
    time.sleep(seconds)
    alone = [late - early for late, early in zip(database_counts(), before, strict=True)]
    with pairs.worker() as (place, start):
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
    compared = pairs.measured(options.tasks, options.pairs, options.before) if options.before else None
    found["pairs"] = compared.as_json() if compared else asdict(pairs.run(options.tasks))
    found["idle"] = asdict(idle(options.idle_seconds))
    if options.json:
        print(json.dumps(found))
    else:
        print("\n".join([*(compared.lines(RATE_TARGET) if compared else ()), *lines(found["idle"])]))
    missed = compared.missed(RATE_TARGET) if compared else []
    for name, most in (("parent_percent", CPU_TARGET), ("statements", STATEMENTS_TARGET)):
        missed += [f"idle, {name}: more than {most}"] if found["idle"][name] > most else []
    for each in missed:
        print(f"MISSED: {each}", file=sys.stderr)
    return int(bool(missed))


def lines(told: dict[str, float]) -> Iterator[str]:
    """Yield the figures of an idle worker beside their targets."""
    yield f"{'idle parent, % of a core':28}{told['parent_percent']:8.2f}  at most {CPU_TARGET}"
    yield f"{'idle, statements/min':28}{told['statements']:8.0f}  at most {STATEMENTS_TARGET}"
    yield f"{'idle, new connections/min':28}{told['connections']:8.0f}"


if __name__ == "__main__":
    sys.exit(main())
