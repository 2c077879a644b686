"""Tasks of a few statements, with and without a kept database connection.

Each task reads a row by its key, updates it, reads it again and counts: four statements. The reference is psycopg with
the same SQL on one connection. "closed" is Celery's own manner: every connection is closed before and after each task.
The ways alternate, in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psycopg
from django.db import connection, connections
from django.db.models import F
from django.utils import timezone

from ami.celery import database_connections
from ami.telemetry.models import UnroutedTask
from benchmarks.frame import Figure, test_database

BARE, KEPT, CLOSED = "psycopg, one connection", "kept (as deployed)", "closed (Celery's own)"
#: Kept connections were 1.35 times as fast end to end before they were built.
TARGET = 1.35


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


def measure(count: int, rounds: int) -> Iterator[Figure]:
    """Run ``count`` tasks each way in each round."""
    row = UnroutedTask.objects.create(name="benchmark", runs=0, last_run_at=timezone.now())
    parameters = {**connection.get_connection_params(), "autocommit": True}
    for name in ("context", "cursor_factory"):
        parameters.pop(name, None)
    with psycopg.connect(**parameters) as link:
        ways = {BARE: bare(link), KEPT: kept, CLOSED: closed}
        found = [{how: rate(run, row.pk, count) for how, run in ways.items()} for _ in range(rounds)]
    connections.close_all()
    for reference, target in ((CLOSED, TARGET), (BARE, None)):
        ours, other = (float(np.median([each[how] for each in found])) for how in (KEPT, reference))
        ratio = float(np.median([each[KEPT] / each[reference] for each in found]))
        yield Figure("tasks, connection kept", "/s", ours, reference, other, ratio, at_least=target)


def rate(run: Callable[[int], None], pk: int, count: int) -> float:
    """Return the tasks per second of one round."""
    run(pk)
    began = time.perf_counter()
    for _ in range(count):
        run(pk)
    return count / (time.perf_counter() - began)


def figures(quick: bool) -> Iterator[Figure]:
    """Yield how fast tasks run with a kept connection."""
    with test_database():
        yield from measure(*((100, 5) if quick else (300, 15)))
