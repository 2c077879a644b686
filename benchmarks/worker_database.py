"""``python -m benchmarks.worker_database``: tasks of a few statements, with and without a kept database connection.

Each task reads a row by its key, updates it, reads it again and counts: four statements. The reference is psycopg with
the same SQL on one connection. "closed" is Celery's own manner: every connection is closed before and after each task.
The ways alternate, in one process. Run it on PostgreSQL (``python -m provision run --durable --need postgres -- ...``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

import django

django.setup()

import numpy as np  # noqa: E402
import psycopg  # noqa: E402
from django.db import connection, connections  # noqa: E402
from django.db.models import F  # noqa: E402
from django.utils import timezone  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from ami.celery import database_connections  # noqa: E402
from ami.telemetry.models import UnroutedTask  # noqa: E402

BARE, KEPT, CLOSED = "psycopg, one connection", "kept (as deployed)", "closed (Celery's own)"
#: Kept connections were 1.35 times as fast end to end before they were built.
TARGET = 1.35


@dataclass(frozen=True)
class Measured:
    """Medians over the rounds; ``ratio`` is tasks per second beside psycopg, ``gain`` beside closed connections."""

    how: str
    per_second: float
    ratio: float
    gain: float


def task(pk: int) -> None:
    """Run four statements with Django."""
    UnroutedTask.objects.get(pk=pk)
    UnroutedTask.objects.filter(pk=pk).update(runs=F("runs") + 1)
    UnroutedTask.objects.get(pk=pk)
    UnroutedTask.objects.filter(pk=pk).count()


def kept(pk: int) -> None:
    """Run the task as a worker's child does."""
    database_connections.before_task()
    task(pk)
    database_connections.after_task()


def closed(pk: int) -> None:
    """Run the task as Celery does."""
    connections.close_all()
    task(pk)
    connections.close_all()


def bare(link: Any) -> Callable[[int], None]:
    """Return the task with psycopg on one connection."""

    def run(pk: int) -> None:
        for sql in (
            "SELECT id, name, runs, first_run_at, last_run_at FROM telemetry_unroutedtask WHERE id = %s",
            "UPDATE telemetry_unroutedtask SET runs = runs + 1 WHERE id = %s",
            "SELECT id, name, runs, first_run_at, last_run_at FROM telemetry_unroutedtask WHERE id = %s",
            "SELECT count(*) FROM telemetry_unroutedtask WHERE id = %s",
        ):
            link.execute(sql, (pk,))

    return run


def measure(count: int, rounds: int) -> list[Measured]:
    """Run ``count`` tasks each way in each round."""
    row = UnroutedTask.objects.create(name="benchmark", runs=0, last_run_at=timezone.now())
    parameters = {**connection.get_connection_params(), "autocommit": True}
    for name in ("context", "cursor_factory"):
        parameters.pop(name, None)
    with psycopg.connect(**parameters) as link:
        ways = {BARE: bare(link), KEPT: kept, CLOSED: closed}
        found = [{how: rate(run, row.pk, count) for how, run in ways.items()} for _ in range(rounds)]
    connections.close_all()
    return [
        Measured(
            how,
            float(np.median([each[how] for each in found])),
            float(np.median([each[how] / each[BARE] for each in found])),
            float(np.median([each[how] / each[CLOSED] for each in found])),
        )
        for how in ways
    ]


def rate(run: Callable[[int], None], pk: int, count: int) -> float:
    """Return the tasks per second of one round."""
    run(pk)
    began = time.perf_counter()
    for _ in range(count):
        run(pk)
    return count / (time.perf_counter() - began)


def main() -> int:
    """Measure in a test database and print the table; exit 1 if the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worker_database", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 rounds of 100 tasks instead of 15 of 300")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if connection.vendor != "postgresql":
        parser.error("it needs PostgreSQL: set DATABASE_URL")
    connection.creation.create_test_db(verbosity=0)
    try:
        rows = measure(*((100, 5) if options.quick else (300, 15)))
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        show(rows)
    return int(any(row.how == KEPT and row.gain < TARGET for row in rows))


def show(rows: list[Measured]) -> None:
    """Print the table."""
    table = Table("connection", "tasks/s", "x psycopg", "x closed", "target", box=None)
    for row in rows:
        verdict = f">= {TARGET:g} x closed: {'met' if row.gain >= TARGET else 'MISSED'}" if row.how == KEPT else ""
        table.add_row(row.how, f"{row.per_second:.0f}", f"{row.ratio:.2f}", f"{row.gain:.2f}", verdict)
    Console(width=110, highlight=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
