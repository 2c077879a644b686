"""Plans of the console's pages over large tables: what an index serves reads no table as a whole."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from celery import current_app
from django.conf import settings
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ami.telemetry.snapshots import live
from tests.support import console_rows
from tests.support.brokers import celery_at
from tests.support.console_pages import client
from tests.support.own_database import own_database

LETTERS, ENTRIES, WORKERS, IMAGES = 6000, 6000, 4, 5
#: A page's number of pages, and the choices of a filter, are of all rows.
OF_ALL_ROWS = ("SELECT COUNT(", "SELECT DISTINCT")
SAMPLES = """
INSERT INTO telemetry_sample (kind, name, resolution, at)
SELECT kind, name, resolution, now() - n * resolution * interval '1 second'
FROM unnest(%s::text[], %s::text[]) AS names (kind, name), unnest(ARRAY[5, 60, 3600]) resolution,
    generate_series(1, 1000) n
"""
HISTOGRAMS = """
INSERT INTO telemetry_taskhistogram (queue, task, resolution, at, started, succeeded, failed, retried, wait_seconds,
    run_seconds, waits, runs)
SELECT name, 'a', resolution, now() - n * resolution * interval '1 second', 0, 0, 0, 0, 0, 0, '[]', '[]'
FROM unnest(%s::text[]) name, unnest(ARRAY[60, 3600]) resolution, generate_series(1, 1000) n
"""
#: By page the tables of which it reads a part alone.
SERIES = ("telemetry_sample", "telemetry_taskhistogram")
PARTS = {
    "series": SERIES,
    "queue": SERIES,
    "worker": SERIES,
    "letter_list": ("queues_taskfailure",),
    "letter_group": ("queues_taskfailure",),
    "letter": ("queues_letter", "queues_taskfailure"),
    "letter_edit": ("queues_letter", "queues_taskfailure"),
    "task": ("queues_letter", "queues_taskfailure"),
}
AUDIT = ("", "?page=1000")


@pytest.fixture(scope="module")
def rows(django_db_setup, django_db_blocker) -> Iterator[None]:
    with django_db_blocker.unblock(), own_database("console_plans"), celery_at("objectstore+memory://console-plans"):
        if connection.vendor != "postgresql":
            pytest.skip("plans are PostgreSQL's")
        current_app.declare_everything()
        console_rows.seed(LETTERS, ENTRIES, WORKERS, IMAGES)
        queues, nodes = console_rows.queues(), console_rows.nodes(20)
        with connection.cursor() as cursor:
            kinds = ["queue"] * len(queues) + ["worker"] * len(nodes)
            cursor.execute(SAMPLES, [kinds, [*queues, *nodes]])
            cursor.execute(HISTOGRAMS, [queues])
            cursor.execute("VACUUM ANALYZE")
        yield


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def read_whole(statements: list[str], tables: tuple[str, ...]) -> list[str]:
    """Return the statements that read one of these tables as a whole."""
    found = []
    for sql in statements:
        if not sql.startswith("SELECT") or sql.startswith(OF_ALL_ROWS) or not any(each in sql for each in tables):
            continue
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}")
            answer = cursor.fetchone()[0]
        plan = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
        if any(node["Node Type"] == "Seq Scan" and node["Relation Name"] in tables for node in nodes(plan)):
            found.append(sql)
    return found


def asked(address: str) -> list[str]:
    browser = client(*Permission.objects.values_list("codename", flat=True))
    with CaptureQueriesContext(connection) as seen:
        assert browser.get(address).getvalue()
    return [each["sql"] for each in seen]


def test_pages_read_the_part_that_they_show(rows, django_db_blocker):
    with django_db_blocker.unblock():
        known = console_rows.addresses()
        found = {
            address: whole
            for name, tables in PARTS.items()
            for address in known[name]
            if (whole := read_whole(asked(address), tables))
        }
        found |= {
            query: whole
            for query in AUDIT
            if (whole := read_whole(asked(f"/admin/queues/audit/{query}"), ("queues_auditentry",)))
        }
    assert found == {}


def test_snapshot_reads_the_last_minutes_alone(rows, django_db_blocker):
    with django_db_blocker.unblock(), CaptureQueriesContext(connection) as seen:
        live.take(current_app, settings.ANTENNA_TOPOLOGY)
        assert read_whole([each["sql"] for each in seen], SERIES) == []


def test_statement_that_reads_a_whole_table_is_found(rows, django_db_blocker):
    with django_db_blocker.unblock():
        sql = "SELECT * FROM telemetry_sample WHERE running = 4"
        assert read_whole([sql], SERIES) == [sql]
