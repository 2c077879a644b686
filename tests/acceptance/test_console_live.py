"""The overview follows levers, workers and work without reloading, on real workers of both brokers, in a browser."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings

from ami.console.levers import LEVERS
from ami.queues import pauses, worker_operations
from ami.queues.models import Worker
from ami.queues.wishes import Operator
from tests.support.browser import chromium, site
from tests.support.browser.chromium import Chromium
from tests.support.browser.page import Page
from tests.support.place import ON_FOLDER, Place, Process, new_place

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone]

#: What is promised of levers, pauses and workers that come and go; of what a worker runs and of the broker's counts.
LEVER_SECONDS, WORK_SECONDS = 6.0, 13.0
B = "tests.support.worker_tasks.basic"
HOLD, SLICES = f"{B}.hold", f"{B}.work_in_slices"
QUEUE, OTHER = "antenna", "antenna-interactive"
ADA = Operator("ada")
#: So low that a worker is held by memory from its start.
HELD = {"MEMORY_THROTTLE_THRESHOLD": "1.2", "MEMORY_RESUME_THRESHOLD": "1.1"}


#: Posts a lever's form as a script could, with the token of the page; the answer's status.
POST = """(() => {
  const body = new URLSearchParams({why: "mine"});
  body.set("csrfmiddlewaretoken", document.querySelector("[name=csrfmiddlewaretoken]").value);
  return fetch("%s", {method: "POST", body}).then(answer => answer.status);
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium.running(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture(params=ON_FOLDER)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with new_place("live", request.param) as made:
        made.use_test_database()
        made.environment["ANTENNA_EXTRA_TASKS"] = B
        importlib.import_module(B)
        made.queues("declare")
        yield made


class Watched:
    """The overview, opened once; nothing reloads it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.took: dict[str, float] = {}

    def row(self, queue: str) -> str:
        """Return what the overview says of a queue; each look is one of the page as it is."""
        found = self.page.evaluate(
            f"document.getElementById({f'queue-{queue}'!r})?.closest('tr').textContent.replace(/\\s+/g, ' ') ?? ''"
        )
        return str(found)

    def follows(self, what: str, seconds: float, condition: Callable[[], Any]) -> None:
        """Wait until the page shows it, and fail where that is later than promised."""
        said = lambda: f"{what}: {self.row(QUEUE)} | {self.row(OTHER)} | {self.page.text('#part-overview')}"  # noqa: E731
        self.took[what] = self.page.until(condition, seconds, said)

    def says(self, what: str, seconds: float, text: str, queue: str = QUEUE) -> None:
        self.follows(what, seconds, lambda: text in self.row(queue))

    def says_no_more(self, what: str, seconds: float, text: str, queue: str = QUEUE) -> None:
        self.follows(what, seconds, lambda: text not in self.row(queue))


def pull(page: Page, verb: str, target: str, why: str, count: str = "") -> None:
    """Pull a lever as a user does: its button, a reason, its confirmation; return when the page behind is shown."""
    page.follow(f"a.lever[href*='/lever/{verb}/{target}/']")
    page.fill("#why", why)
    if count:
        page.fill("#field-count", count)
    page.follow("button[type=submit]", LEVERS[verb].text)


def pull_by_keys(page: Page, verb: str, target: str, why: str) -> None:
    """Pull a lever without a mouse; its button has the focus, also after polls."""
    button = f"lever-{verb}-{target}"
    page.evaluate(f"document.getElementById({button!r}).focus()")
    page.evaluate(f"document.getElementById({button!r}).dataset.old = ''")
    page.until(
        lambda: not page.evaluate("'old' in document.activeElement.dataset"),
        WORK_SECONDS,
        lambda: "a poll brings figures",
    )
    assert page.evaluate("document.activeElement.id") == button
    page.follow_key("Enter")
    # A browser gives `autofocus` its focus with the first frame, which may follow the load.
    focused = lambda: page.evaluate("document.activeElement.id")  # noqa: E731
    page.until(lambda: focused() == "why", LEVER_SECONDS, lambda: f"the reason has the focus, not {focused()!r}")
    page.fill("#why", why)
    page.follow_key("Enter")


def levers(watched: Watched, worker: Process) -> None:
    node = node_of(worker)
    topology = settings.ANTENNA_TOPOLOGY
    pauses.pause(topology, QUEUE, ADA, why="a new disk", seconds=0)
    watched.says("pause of another process", LEVER_SECONDS, "Paused by ada")
    assert "a new disk" in watched.row(QUEUE)
    pull(watched.page, "resume", QUEUE, "it is in")
    watched.says_no_more("resume", LEVER_SECONDS, "Paused by")
    worker_operations.park(topology, node, ADA, why="its fan", seconds=0)
    watched.says("park of another process", LEVER_SECONDS, "parked by ada")
    assert "its fan" in watched.row(QUEUE)
    worker_operations.unpark(topology, node, ADA, seconds=0)
    watched.says_no_more("unpark of another process", LEVER_SECONDS, "parked")


def work(watched: Watched, place: Place) -> None:
    place.send(SLICES, 1200, queue=QUEUE)
    watched.follows("task with its progress", WORK_SECONDS, lambda: "steps in" in watched.page.text("table.tasks"))
    task = place.send(HOLD, 60, queue=OTHER)
    watched.follows("task", WORK_SECONDS, lambda: HOLD in watched.page.text("table.tasks"))
    pull(watched.page, "cancel", task, "stuck")
    watched.follows("cancel", WORK_SECONDS, lambda: HOLD not in watched.page.text("table.tasks"))
    pull_by_keys(watched.page, "pause", QUEUE, "to count")
    for _ in range(3):
        place.send(f"{B}.succeed", queue=QUEUE)
    count = "td[data-label=Waiting] strong"
    watched.follows("broker's count", WORK_SECONDS, lambda: "3" in watched.page.texts(count))
    watched.page.follow(f"#queue-{QUEUE}")
    pull(watched.page, "purge", QUEUE, "a test's", count="3")
    watched.page.open("/admin/queues/")
    watched.follows("purge", LEVER_SECONDS, lambda: "3" not in watched.page.texts(count))
    pull(watched.page, "resume", QUEUE, "")


def comings_and_goings(watched: Watched, place: Place, first: Process, second: Process) -> None:
    second.stop()
    watched.says("worker that ends in order", LEVER_SECONDS, "none; start", OTHER)
    place.worker(OTHER, **HELD)
    watched.says("worker that is held by memory", LEVER_SECONDS, "held: RAM", OTHER)
    first.kill()
    watched.says("worker that was killed", LEVER_SECONDS, "dead")


def node_of(worker: Process) -> str:
    return str(Worker.objects.get(pid=worker.popen.pid).node)


def test_overview_follows_what_happens(place: Place, browser: Chromium):
    site.operator()
    web = site.web_at(place)
    with site.signed_in(browser, web.url, site.OPERATOR) as page:
        watched = Watched(page)
        first, second = place.workers(QUEUE, OTHER)
        watched.says("worker that comes", LEVER_SECONDS, "1 worker")
        levers(watched, first)
        work(watched, place)
        comings_and_goings(watched, place, first, second)
        print("; ".join(f"{what} {seconds:.1f} s" for what, seconds in watched.took.items()))
        assert not page.problems
    viewer_has_no_levers(browser, web.url)


def viewer_has_no_levers(browser: Chromium, url: str) -> None:
    site.viewer()
    with site.signed_in(browser, url, site.VIEWER) as page:
        assert page.texts("a.lever") == []
        page.open(f"/admin/queues/queue/{QUEUE}/")
        assert page.texts("a.lever, .console-page form") == []
        assert not page.problems
        for verb in LEVERS:
            assert page.evaluate(POST % f"/admin/queues/lever/{verb}/{QUEUE}/") == 403
