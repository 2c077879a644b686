"""``python -m benchmarks.lists``: every list of the API and the admin over a million captures, with each filter.

Each page is opened through the whole application, as served, first and deep. The reference is the same rows fetched by
primary key in plain SQL, in the same run. Needs PostgreSQL:
``python -m provision run --durable --need postgres -- python -m benchmarks.lists``.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks import frame
from benchmarks.frame import Figure

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
        "images": "JobImage",
        "events": "Event",
        "deployments": "Deployment",
        "taxa": "Taxon",
        "projects": "Project",
    }
    kind, _, rest = name.partition("/")
    noun = rest.partition("/?")[0].partition("/ (")[0]
    if noun.endswith("/images"):  # Of one job.
        noun = "images"
    return tables[models[noun] if kind == "api" else noun]


def by_key(table: str, keys: list[int]) -> Callable[[], Any]:
    """Return a function that fetches rows by primary key in plain SQL."""
    from django.db import connection

    def fetch() -> Any:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table} WHERE id = ANY(%s)", [keys])  # noqa: S608
            return cursor.fetchall()

    return fetch


def measure(page: Page, rounds: int) -> Figure:
    """Open a page, and fetch its rows by key."""
    client = page.client()

    def opened() -> Any:
        answer = client.get(page.path)
        assert answer.status_code == 200, (page, answer.status_code, answer.content[:200])
        return answer

    keys = keys_of(page.path, opened())
    ms = median_ms(opened, rounds)
    return _figure(page.name, len(keys), ms, median_ms(by_key(table_of(page.name), keys), rounds))


def _figure(page: str, rows: int, ms: float, by_key_ms: float) -> Figure:
    reference = f"its {rows} rows by key"
    return Figure(page, "ms", ms, reference, by_key_ms, ms / by_key_ms, at_most=TARGET_MS, of_value=True)


def measured(made: LargeLists, rounds: int) -> Iterator[Figure]:
    """Measure every page."""
    from tests.support.product import list_pages

    for pages in (list_pages.api_pages, list_pages.admin_pages):
        for page in pages(made):
            yield measure(page, rounds)


def refresh_of_a_station(made: LargeLists, rounds: int) -> Figure:
    """Recount one station; the reference fetches it by key."""
    from ami.main.services import counts

    pk = made.station.pk
    ms = median_ms(lambda: counts.refresh("deployment", pk), rounds)
    return _figure("recount of a station", 1, ms, median_ms(by_key("main_deployment", [pk]), rounds))


def figures(quick: bool) -> Iterator[Figure]:
    """Build the rows and measure the pages."""
    from tests.support.product import large_lists

    captures, rounds = (QUICK_CAPTURES, QUICK_ROUNDS) if quick else (CAPTURES, ROUNDS)
    with frame.test_database():
        began = time.monotonic()
        made = large_lists.build(captures)
        large_lists.analyze()
        print(f"{captures:,} captures built in {time.monotonic() - began:.0f} s", file=sys.stderr)
        yield from measured(made, rounds)
        yield refresh_of_a_station(made, rounds)


if __name__ == "__main__":
    sys.exit(frame.main("lists", __doc__, {"lists": figures}))
