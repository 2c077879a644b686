"""A primary that becomes read-only: no task is buried for it, and afterwards no session of that time is used."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from ami.telemetry.models import UnroutedTask
from tests.acceptance.test_beat import every_second
from tests.support.place import FOLDER, Place, until

T = "tests.support.worker_tasks.writing"
HOUSEKEEPING = "antenna-housekeeping"
pytestmark = pytest.mark.parametrize("place", [FOLDER], indirect=True)


@pytest.fixture
def place(database_place: Place) -> Place:
    """A place whose processes keep their sessions for five minutes."""
    if connection.vendor != "postgresql":
        pytest.skip("a file has no standby")
    database_place.environment["DATABASE_URL"] += "?CONN_MAX_AGE=300"
    database_place.environment["ANTENNA_EXTRA_TASKS"] = T
    database_place.queues("declare")
    return database_place


@contextmanager
def read_only() -> Iterator[None]:
    """Refuse the writes of sessions that begin in the block, also after it, as a primary that became a standby does."""
    name = connection.settings_dict["NAME"]
    with connection._nodb_cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
    connection.close()
    try:
        yield
    finally:
        with connection._nodb_cursor() as cursor:
            cursor.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        connection.close()


def rows() -> set[str]:
    return set(UnroutedTask.objects.values_list("name", flat=True))


def test_tasks_of_a_failover_are_tried_again_and_none_is_buried(place: Place):
    worker = place.worker("antenna", ANTENNA_FALLBACK_CONCURRENCY="1")
    place.send(f"{T}.write_row", "before")
    until(lambda: "before" in rows())
    with read_only():
        place.send(f"{T}.write_row", "during")
        until(lambda: "cannot execute" in worker.text, 30, "the write was refused")
        fenced = place.send(f"{T}.run_fenced", "fenced")
        until(lambda: "Fenced run not begun" in worker.text, 30, "the fence was refused")
    place.send(f"{T}.write_row", "after")
    until(lambda: rows() >= {"during", "after"}, 60, lambda: worker.text[-3000:])
    until(lambda: place.ran("run_fenced", id=fenced, state="SUCCESS"), 60, lambda: worker.text[-3000:])
    assert UnroutedTask.objects.get(name="after").runs == 0, "its first try found a session that writes"
    assert place.depth("antenna.dlq") == 0


def test_beat_sends_again_soon_after_a_failover(place: Place):
    every_second()
    place.beat()
    until(lambda: place.depth(HOUSEKEEPING) >= 2, 40)
    with read_only():
        beat = place.processes[-1]
        until(lambda: "accepts no writes" in beat.text, 30, "beat was refused")
    before, began = place.depth(HOUSEKEEPING), time.monotonic()
    until(lambda: place.depth(HOUSEKEEPING) > before, 60, lambda: beat.text[-3000:])
    assert time.monotonic() - began < 20
