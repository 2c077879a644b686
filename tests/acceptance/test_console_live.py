"""The overview follows what happens without being reloaded: within 3 s, or 10 s for what a worker or a broker tells."""

from collections.abc import Iterator

import pytest
from django.conf import settings

from ami.queues import pauses, worker_operations
from ami.queues.models import Worker
from ami.queues.wishes import Operator
from tests.support.browser import chromium, site
from tests.support.browser.chromium import Chromium
from tests.support.browser.page import Page
from tests.support.place import BROKERS, Place, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone]

TASKS = "tests.support.worker_tasks.basic"
QUEUE, OTHER = "antenna-interactive", "antenna-housekeeping"
SOON, LATER = 3.0, 10.0


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium.running(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def row(queue: str = QUEUE) -> str:
    """Return the selector of a queue's row."""
    return f"tr:has(#queue-{queue})"


def cell(label: str, queue: str = QUEUE) -> str:
    return f'{row(queue)} [data-label="{label}"]'


def follows_operations(page: Page) -> None:
    topology, who = settings.ANTENNA_TOPOLOGY, Operator("ada")
    pauses.pause(topology, QUEUE, who, why="night shift", seconds=0)
    page.wait(row(), "night shift", SOON)
    pauses.resume(topology, QUEUE, who, seconds=0)
    page.wait_gone(row(), "night shift", SOON)
    service = Worker.objects.get().service
    worker_operations.park(topology, service, who, why="oil change", seconds=0)
    page.wait(row(), "oil change", SOON)
    worker_operations.unpark(topology, service, who, seconds=0)
    page.wait_gone(row(), "oil change", SOON)


def follows_work(place: Place, page: Page) -> None:
    for _ in range(4):
        place.send(f"{TASKS}.hold", 6, queue=QUEUE)
    page.wait(cell("Running"), "2", LATER)
    page.wait(cell("Waiting"), "2", LATER)
    page.wait("main", f"{TASKS}.hold", LATER)
    page.wait(cell("Waiting"), "0", LATER)


@pytest.mark.parametrize("place", BROKERS, indirect=True)
def test_overview_follows_what_happens(database_place: Place, browser: Chromium):
    place = database_place
    place.queues("declare")
    site.operator()
    worker = place.worker(QUEUE)
    web = site.web_at(place)
    with site.signed_in(browser, web.url, site.OPERATOR) as page:
        page.wait(cell("Workers"), "1 worker")
        page.evaluate("window.isTheSame = true")
        follows_operations(page)
        follows_work(place, page)
        place.worker(OTHER)
        page.wait(cell("Workers", OTHER), "1 worker", SOON)
        until(lambda: not place.depth(QUEUE), 20)
        worker.stop()
        page.wait(cell("Workers"), "none", SOON)
        assert page.evaluate("window.isTheSame"), "the page was never reloaded"
        assert not page.problems
