"""A worker's child keeps its database connection from task to task."""

import pytest
from django.db import connection

from tests.support.place import Place, until

T = "tests.support.worker_tasks.basic"


def backends() -> set[int]:
    """Return the numbers of the other connections to this database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return {pid for (pid,) in cursor.fetchall()}


def test_child_keeps_one_connection_between_tasks(database_place: Place):
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL's backends have a number")
    database_place.worker("antenna", ANTENNA_FALLBACK_CONCURRENCY="1")
    seen: list[set[int]] = []
    for count in range(1, 4):
        database_place.send(f"{T}.succeed")
        until(lambda count=count: len(database_place.ran("succeed")) == count)
        seen.append(until(backends, what="the child's connection"))
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 1
