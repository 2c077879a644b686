"""The database connection that a worker's child keeps between tasks, and when it does not."""

import signal
import time
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.utils import timezone

from ami.celery import database_connections
from ami.celery.thread_database import short_connection
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


def become_read_only() -> None:
    """Let the server refuse every write of this session, as a primary that has become a standby does."""
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")


def lock() -> None:
    with transaction.atomic():
        UnroutedTask.objects.select_for_update().first()


def nested() -> None:
    with transaction.atomic(), suppress(DatabaseError), transaction.atomic():
        add("refused")


def stream() -> None:
    list(UnroutedTask.objects.raw("INSERT INTO telemetry_unroutedtask DEFAULT VALUES RETURNING *"))


WRITES: list[Any] = [partial(add, "refused"), transaction.atomic(partial(add, "refused")), lock, stream]


@on_postgresql
@pytest.mark.parametrize("write", WRITES, ids=["write", "transaction", "lock", "returning"])
def test_session_of_a_read_only_server_is_dropped_by_its_first_write(write: Any):
    first = backend()
    become_read_only()
    assert UnroutedTask.objects.count() == 0, "it reads on"
    with pytest.raises(OperationalError, match="read-only"):
        write()
    assert connection.connection is None
    add("kept")
    assert backend() != first
    assert list(UnroutedTask.objects.values_list("name", flat=True)) == ["kept"]


@on_postgresql
def test_session_that_only_read_on_a_read_only_server_serves_no_further_task():
    first = a_task(backend)
    a_task(become_read_only)
    assert a_task(backend) != first
    a_task(partial(add, "kept"))


@on_postgresql
def test_refusal_that_is_caught_within_a_transaction_ends_its_session_with_it():
    first = backend()
    become_read_only()
    nested()
    add("kept")
    assert backend() != first
    assert not connection.in_atomic_block


@on_postgresql
def test_short_connection_to_a_read_only_server_is_not_kept():
    with short_connection(keep=True), suppress(OperationalError):
        become_read_only()
        add("refused")
    with short_connection():
        add("kept")


@on_postgresql
def test_other_wrappers_of_statements_stay_what_they_are():
    connection.close()
    seen: list[str] = []

    def see(execute: Any, sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(see):
        backend()
    backend()
    assert len([each for each in seen if "pg_backend_pid" in each]) == 1
    become_read_only()
    with pytest.raises(OperationalError, match="read-only"):
        add("refused")


def test_connections_of_no_use_are_left_alone():
    connections.close_all()
    database_connections.before_task()
    database_connections.after_task()
    assert connection.connection is None
