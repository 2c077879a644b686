"""A row that the database refuses as data holds up no other row; a database that is away refuses none."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, IntegrityError, InterfaceError, OperationalError, ProgrammingError, connection
from django.utils import timezone

from ami.celery import batch_writes, storable
from ami.celery.database_away import is_away
from ami.queues.models import TaskCount


def written(rows: Sequence[Any], error: Exception) -> tuple[list[Any], list[Any], int]:
    """Write rows of which None is refused; return what was written and refused, and in how many writes."""
    done: list[Any] = []
    left: list[Any] = []
    writes = 0

    def together(some: Sequence[Any]) -> None:
        nonlocal writes
        writes += 1
        if None in some:
            raise error
        done.extend(some)

    batch_writes.write(rows, together, lambda row, _: left.append(row))
    return done, left, writes


@pytest.mark.parametrize(
    "error",
    [DataError(), IntegrityError(), ProgrammingError(), ValueError(), TypeError(), OverflowError(), RecursionError()],
)
def test_refused_row_holds_up_no_other(error: Exception):
    assert written([1, 2, None, 3], error) == ([1, 2, 3], [None], 5)
    assert written([None, None], error) == ([], [None, None], 3)
    assert written([1, 2], error) == ([1, 2], [], 1)
    assert written([], error) == ([], [], 0)


def test_one_refused_row_of_many_costs_few_writes():
    done, left, writes = written([*range(499), None], DataError())
    assert (len(done), left) == (499, [None])
    assert writes < 20


@pytest.mark.parametrize("error", [OperationalError("away"), InterfaceError("closed")])
def test_database_that_is_away_refuses_no_row(error: Exception):
    with pytest.raises(type(error)):
        written([1, None], error)


@pytest.mark.django_db(transaction=True)
@pytest.mark.sqlite
@pytest.mark.parametrize("values", [("q\ud800", 1), ("q", 2**80), ("q", [[1]]), ("q", None)])
def test_what_the_driver_or_the_database_refuses_as_data_is_not_away(values: tuple[Any, Any]):
    def together(some: Sequence[tuple[Any, Any]]) -> None:
        table, now = TaskCount._meta.db_table, timezone.now().isoformat()
        with connection.cursor() as cursor:
            for queue, completed in some:
                cursor.execute(f"INSERT INTO {table} (queue, hour, completed, failed) VALUES (%s, %s, %s, 0)", [queue, now, completed])  # fmt: skip # noqa: E501, S608

    refused: list[Any] = []
    batch_writes.write([("good", 1), values], together, lambda row, _: refused.append(row))
    assert refused == [values]
    assert TaskCount.objects.filter(queue="good").exists()


@pytest.mark.django_db(transaction=True)
def test_missing_table_and_lost_connection_are_away():
    with connection.cursor() as cursor, pytest.raises(Exception, match="no_such_table") as missing:
        cursor.execute("SELECT 1 FROM no_such_table")
    assert is_away(missing.value)
    connection.connection.close()
    with pytest.raises(Exception, match="closed") as lost:
        TaskCount.objects.filter(hour__lt=timezone.now() - timedelta(days=1)).exists()
    connection.close()
    assert is_away(lost.value) or connection.vendor == "sqlite"


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (3, 3),
        (2.9, 2),
        (-1, 0),
        (2**40, 2**31 - 1),
        (10**400, 2**31 - 1),
        (float("inf"), 2**31 - 1),
        (float("-inf"), 0),
        (float("nan"), 0),
        (True, 0),
        ("7", 0),
        (None, 0),
        ([1], 0),
    ],
)
def test_count_of_a_stranger_is_bounded(value: Any, count: int):
    assert storable.count(value) == count


def test_text_of_a_stranger_is_bounded():
    assert storable.text("a\0b\ud800c") == "a?b?c"
    assert len(storable.text("x" * 300)) == 255
    assert storable.text("x" * 300, None) == "x" * 300
    assert storable.text(5) == "5"
