"""The database connection that a worker's child keeps between tasks, and when it does not."""

import signal
import time
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from django.db import OperationalError, connection, connections, transaction
from django.utils import timezone

from ami.celery import database_connections
from ami.telemetry.models import UnroutedTask
from config import celery_app
from tests.support.place import until

pytestmark = pytest.mark.django_db(transaction=True)

on_postgresql = pytest.mark.skipif("connection.vendor != 'postgresql'", reason="PostgreSQL's backends have a number")


def backend() -> int:
    """Return the number of the process that serves this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def add(name: str) -> None:
    """Write a row."""
    UnroutedTask.objects.create(name=name, runs=1, last_run_at=timezone.now())


def a_task(work: Any) -> Any:
    """Run something as a child runs a task."""
    database_connections.before_task()
    try:
        return work()
    finally:
        database_connections.after_task()


def limit_within(seconds: float, statement: str) -> None:
    """Raise the soft time limit in the middle of a statement, from a signal as in a worker's child."""

    def raise_limit(*_: Any) -> None:
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, raise_limit)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with connection.cursor() as cursor, pytest.raises(SoftTimeLimitExceeded):
            cursor.execute(statement)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def end_backend(pid: int) -> None:
    """End a connection from the server's side, as a restart of PostgreSQL does."""
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    finally:
        other.close()


@on_postgresql
def test_tasks_share_one_connection():
    assert len({a_task(backend) for _ in range(3)}) == 1


@on_postgresql
def test_connection_that_is_too_old_is_replaced():
    first = a_task(backend)
    connection.close_at = time.monotonic()
    assert a_task(backend) != first


@on_postgresql
def test_connection_that_the_server_ended_is_replaced_before_a_task():
    first = a_task(backend)
    end_backend(first)
    assert a_task(backend) != first


@on_postgresql
def test_connection_that_was_idle_is_checked_before_its_next_statement():
    a_task(backend)
    connection.antenna_used_at = time.monotonic() - database_connections.CHECK_AFTER_SECONDS - 1
    database_connections.before_task()
    assert not connection.health_check_done


@on_postgresql
def test_incident_35_statement_cut_off_by_a_soft_limit_is_cancelled_and_its_connection_dropped():
    first = a_task(backend)
    a_task(lambda: limit_within(0.2, "SELECT pg_sleep(120)"))
    assert a_task(backend) != first

    def is_over() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [first])
            return cursor.fetchone()[0] == 0

    until(is_over, 30, "PostgreSQL has ended the statement")


def test_transaction_that_was_left_open_is_rolled_back_and_later_tasks_commit():
    def leave_open() -> None:
        transaction.atomic().__enter__()  # As if the limit had struck inside Django's own __exit__.
        add("left")

    a_task(leave_open)
    a_task(lambda: add("kept"))
    assert not connection.in_atomic_block
    assert list(UnroutedTask.objects.values_list("name", flat=True)) == ["kept"]


@on_postgresql
def test_connection_is_dropped_after_an_error_of_the_database():
    def err() -> None:
        with connection.cursor() as cursor, pytest.raises(OperationalError):
            cursor.execute("SET LOCAL statement_timeout = 1; SELECT pg_sleep(5)")

    first = a_task(backend)
    a_task(err)
    assert a_task(backend) != first


@on_postgresql
def test_on_failure_of_a_task_finds_a_usable_connection():
    seen: list[int] = []

    class Base(celery_app.Task):  # type: ignore[misc, name-defined]
        abstract = True

        def on_failure(self, *_: Any) -> None:
            seen.append(backend())

    def cut_off() -> None:
        limit_within(0.2, "SELECT pg_sleep(120)")
        raise ValueError

    task = celery_app.task(cut_off, name="tests.cut_off", base=Base, shared=False)
    first = backend()
    task.push_request(id="1", is_eager=False, called_directly=False)
    try:
        with pytest.raises(ValueError):
            task()
        task.on_failure()
    finally:
        task.pop_request()
        celery_app.tasks.pop(task.name)
    assert seen
    assert seen != [first]


def test_connections_of_no_use_are_left_alone():
    connections.close_all()
    database_connections.before_task()
    database_connections.after_task()
    assert connection.connection is None
