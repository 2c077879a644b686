"""Plans of every list over large tables: no table is read as a whole, and every page in few queries of few rows."""

import json
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.support.own_database import own_database
from tests.support.product import large_lists, list_pages
from tests.support.product.admin_pages import one_list_of_apps
from tests.support.product.large_lists import LargeLists

CAPTURES = 30_000
LARGE = {
    "main_sourceimage",
    "main_detection",
    "main_classification",
    "main_occurrence",
    "main_sourceimagecollection_images",
    "jobs_jobimage",
    "jobs_storedresult",
}
#: A deep page, or a count, reads as many keys as an offset may skip, and a page; a join as many of each table.
MOST_ROWS = 2 * (10_000 + 500)
MOST_QUERIES = 14


@pytest.fixture(scope="module")
def made(django_db_setup, django_db_blocker) -> Iterator[LargeLists]:
    """Large tables in a database of this module's own."""
    with django_db_blocker.unblock(), own_database("large_lists"):
        rows = large_lists.build(CAPTURES)
        large_lists.analyze()
        yield rows


def nodes(plan: dict) -> Iterator[dict]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def explained(sql: str) -> list[dict]:
    """Return the nodes of a query's plan, run."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        found = cursor.fetchone()[0]
    return list(nodes((json.loads(found) if isinstance(found, str) else found)[0]["Plan"]))


def rows_read(scan: dict) -> int:
    removed = scan.get("Rows Removed by Filter", 0) + scan.get("Rows Removed by Index Recheck", 0)
    return (scan["Actual Rows"] + removed) * scan["Actual Loops"]


def problems_of(page: list_pages.Page) -> list[str]:
    """Return what is wrong with the plans of a page."""
    client = page.client()
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(page.path)
    if answer.status_code != 200:
        return [f"answers {answer.status_code} {answer.content[:100]!r}"]
    problems = [] if len(queries) <= MOST_QUERIES else [f"{len(queries)} queries"]
    for query in queries:
        sql = query["sql"]
        if not sql.startswith(("SELECT", "(SELECT")):
            continue
        plan = explained(sql)
        scans = [node for node in plan if "Scan" in node["Node Type"] and "Bitmap Index" not in node["Node Type"]]
        problems += [
            f"reads all of {scan['Relation Name']}: {sql}"
            for scan in scans
            if scan["Node Type"] == "Seq Scan" and scan["Relation Name"] in LARGE
        ]
        read = sum(rows_read(scan) for scan in scans if scan.get("Relation Name") in LARGE)
        problems += [f"reads {read} rows: {sql}"] if read > MOST_ROWS else []
    return problems


@pytest.mark.parametrize("pages", [list_pages.api_pages, list_pages.admin_pages])
def test_no_page_of_a_list_reads_a_large_table(made, django_db_blocker, pages):
    with django_db_blocker.unblock(), one_list_of_apps():
        suspects = [page for page in pages(made) if problems_of(page)]
        if suspects:
            # A snapshot of another test may have kept the first VACUUM from marking pages as visible to all.
            large_lists.analyze()
        found = {page.name: problems for page in suspects if (problems := problems_of(page))}
    assert found == {}


def test_every_filter_of_a_large_list_is_among_the_pages(made):
    from ami.main.api.captures import FILTERS
    from ami.main.api.occurrences import DETECTION_FILTERS, OCCURRENCE_FILTERS

    lists = list_pages.api_lists(made)
    for name, filters in {
        "captures": FILTERS,
        "detections": DETECTION_FILTERS,
        "occurrences": OCCURRENCE_FILTERS,
    }.items():
        assert {key for key in filters if not any(f"{key}=" in query for query in lists[name])} == set()
