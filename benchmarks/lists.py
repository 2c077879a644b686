"""``python -m benchmarks.lists``: every list of the API and the admin over a million captures, with each filter.

Each page is opened through the whole application, as served, first and deep. The reference is the same rows fetched by
primary key in plain SQL, in the same run. Needs PostgreSQL:
``python -m provision run --durable --need postgres -- python -m benchmarks.lists``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.test")

if __name__ == "__main__":
    import django

    django.setup()

if TYPE_CHECKING:
    from tests.support.product.large_lists import LargeLists
    from tests.support.product.list_pages import Page

CAPTURES, QUICK_CAPTURES = 1_000_000, 100_000
TARGET_MS = 150.0
ROUNDS, QUICK_ROUNDS = 5, 3


@dataclass(frozen=True)
class Measured:
    """The median time of a page, and of fetching its rows by primary key."""

    page: str
    rows: int
    ms: float
    by_key_ms: float

    @property
    def target_ms(self) -> float:
        """The most that the page may take."""
        return TARGET_MS


def median_ms(run: Callable[[], Any], rounds: int) -> float:
    """Run once to warm up, then return the median of ``rounds`` runs."""
    run()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def keys_of(path: str, answer: Any) -> list[int]:
    """Return the primary keys of the rows that a page shows."""
    if path.startswith("/api/"):
        return [row["id"] for row in answer.json()["results"]]
    return [int(key) for key in dict.fromkeys(re.findall(r"/(\d+)/change/", answer.content.decode()))]


def table_of(name: str) -> str:
    """Return the table of a list."""
    from django.contrib import admin

    tables = {model.__name__: model._meta.db_table for model in admin.site._registry}
    models = {
        "captures": "SourceImage",
        "captures/collections": "SourceImageCollection",
        "detections": "Detection",
        "occurrences": "Occurrence",
        "jobs": "Job",
        "events": "Event",
        "deployments": "Deployment",
        "taxa": "Taxon",
        "projects": "Project",
    }
    kind, _, rest = name.partition("/")
    noun = rest.partition("/?")[0].partition("/ (")[0]
    return tables[models[noun] if kind == "api" else noun]


def by_key(table: str, keys: list[int]) -> Callable[[], Any]:
    """Return a function that fetches rows by primary key in plain SQL."""
    from django.db import connection

    def fetch() -> Any:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table} WHERE id = ANY(%s)", [keys])  # noqa: S608
            return cursor.fetchall()

    return fetch


def measure(page: Page, rounds: int) -> Measured:
    """Open a page, and fetch its rows by key."""
    client = page.client()

    def opened() -> Any:
        answer = client.get(page.path)
        assert answer.status_code == 200, (page, answer.status_code, answer.content[:200])
        return answer

    keys = keys_of(page.path, opened())
    ms = median_ms(opened, rounds)
    return Measured(page.name, len(keys), ms, median_ms(by_key(table_of(page.name), keys), rounds))


def measured(made: LargeLists, rounds: int, wanted: str) -> Iterator[Measured]:
    """Measure every page whose name contains ``wanted``."""
    from tests.support.product import list_pages

    for pages in (list_pages.api_pages, list_pages.admin_pages):
        for page in pages(made):
            if wanted in page.name:
                yield measure(page, rounds)


def refresh_of_a_station(made: LargeLists, rounds: int) -> Measured:
    """Recount one station; the reference fetches it by key."""
    from ami.main.services import counts

    pk = made.station.pk
    ms = median_ms(lambda: counts.refresh("deployment", pk), rounds)
    return Measured("recount of a station", 1, ms, median_ms(by_key("main_deployment", [pk]), rounds))


def main() -> int:
    """Build the tables, measure, print the table, and return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", default="", help="only pages whose name contains this")
    options = parser.parse_args()
    from django.db import connection

    if connection.vendor != "postgresql":
        parser.error("needs PostgreSQL: set DATABASE_URL, or use provision run --durable --need postgres")
    connection.creation.create_test_db(verbosity=0)
    try:
        found = benchmark(quick=options.quick, wanted=options.only)
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0)
    if options.json:
        print(json.dumps([{**asdict(row), "target_ms": row.target_ms} for row in found], indent=2))
    else:
        show(found)
    return int(any(row.ms > row.target_ms for row in found))


def benchmark(*, quick: bool, wanted: str) -> list[Measured]:
    """Build the rows and measure the pages."""
    from tests.support.product import large_lists

    captures, rounds = (QUICK_CAPTURES, QUICK_ROUNDS) if quick else (CAPTURES, ROUNDS)
    began = time.monotonic()
    made = large_lists.build(captures)
    large_lists.analyze()
    print(f"{captures:,} captures built in {time.monotonic() - began:.0f} s", file=sys.stderr)
    found = list(measured(made, rounds, wanted))
    return found if wanted else [*found, refresh_of_a_station(made, rounds)]


def show(found: list[Measured]) -> None:
    """Print the table, and the slowest page."""
    from rich.console import Console
    from rich.table import Table

    table = Table("page", "rows", "ms", "by key, ms", "at most, ms")
    for row in found:
        table.add_row(row.page, str(row.rows), f"{row.ms:.1f}", f"{row.by_key_ms:.1f}", f"{row.target_ms:.0f}")
    console = Console(width=130)
    console.print(table)
    slowest = max(found, key=lambda row: row.ms)
    console.print(f"{len(found)} pages, slowest {slowest.ms:.0f} ms: {slowest.page}")


if __name__ == "__main__":
    sys.exit(main())
