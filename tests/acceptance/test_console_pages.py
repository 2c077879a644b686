"""Every page of the console and the admin, in a browser: no error, no violation of the policy, nothing barred."""

from collections.abc import Iterator
from random import Random

import pytest
from django.urls import reverse

from ami.jobs.models import Job
from ami.main.models import SourceImage
from ami.queues.models import Letter, TaskRun, Worker
from tests.support.browser import accessibility, chromium, site
from tests.support.browser.chromium import Chromium
from tests.support.browser.page import DESK, PHONE, Page
from tests.support.place import Place
from tests.support.product import admin_rows
from tests.support.product.admin_pages import MODELS, address
from tests.support.screenshots import calls
from tests.support.soak import soak

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone]

QUEUE, DOCS = "antenna-ingest", "/api/v2/docs/"
#: What Django's own lists and forms have; the console's pages have none of it.
DJANGOS = ("label", "label-title-only", "link-in-text-block", "link-name", "target-size")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium.running(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def settled(page: Page, path: str) -> None:
    """Return when a page that loads what it shows has it: the API's documentation its tags."""
    if path == DOCS:
        drawn = "!!document.querySelector('#docs .opblock-tag')"
        page.until(lambda: page.evaluate(drawn), 60, lambda: "the API's documentation is drawn")


def console_pages() -> list[str]:
    """Return an address of each page, those of one thing for a row of it."""
    names = ("overview", "workers", "calls", "letters", "letter_list", "replays", "schedule", "audit", "handbook")
    letter, worker, run = Letter.objects.all()[0], Worker.objects.all()[0], TaskRun.objects.all()[0]
    return [
        *(reverse(f"console:{name}") for name in names),
        reverse("console:queue", args=[QUEUE]),
        reverse("console:peek", args=[QUEUE]),
        reverse("console:worker", args=[worker.node]),
        reverse("console:letter", args=[letter.pk]),
        reverse("console:letter_edit", args=[letter.pk]),
        reverse("console:letter_group", args=[letter.cause]),
        reverse("console:task", args=[run.task_id]),
        *(reverse("console:lever", args=[verb, QUEUE]) for verb in ("pause", "move", "purge")),
    ]


def admin_pages() -> list[str]:
    """Return the admin's index, pages with something of ours, and lists."""
    job = Job.objects.filter(images__isnull=False)[0]
    capture = SourceImage.objects.filter(detections__isnull=False)[0]
    lists = [address(model, "changelist") for model in soak([Job, SourceImage], MODELS)]
    return ["/admin/", address(Job, "change", job.pk), address(SourceImage, "change", capture.pk), *lists]


def faults(page: Page, path: str, rules: tuple[str, ...] = ()) -> list[str]:
    """Return all that is wrong with a page, on a desk and a phone, in light and dark, but for some rules of axe."""
    page.problems.clear()
    page.resize(DESK)
    page.open(path)
    settled(page, path)
    found = accessibility.violations(page, rules)
    page.resize(DESK, dark=True)
    found += [f"dark: {each}" for each in accessibility.violations(page, rules, colours_only=True)]
    page.resize(PHONE)
    if page.overhang > 0:
        found.append(f"{page.overhang} px wider than a phone: {page.widest()}")
    # The captures of this test have no files.
    missing = ("/thumbnail/", "/crop/", "/preview/")
    problems = [each for each in page.problems if not any(part in each for part in missing)]
    return [f"{path}: {each}" for each in (*found, *problems)]


def test_no_page_has_faults(database_place: Place, browser: Chromium):
    database_place.queues("declare")
    admin_rows.everything()
    Letter.objects.update(cause="c0ffee")
    calls.add(Random(1))
    site.operator()
    web = site.web_at(database_place)
    with site.signed_in(browser, web.url, site.OPERATOR) as page:
        found = [fault for path in console_pages() for fault in faults(page, path)]
        found += faults(page, DOCS)
        found += [fault for path in admin_pages() for fault in faults(page, path, DJANGOS)]
    assert not found, "\n".join(found)


def test_violation_of_the_policy_is_seen(database_place: Place, browser: Chromium):
    web = site.web_at(database_place)
    with browser.visitor(web.url) as page:
        page.open("/admin/login/")
        assert not page.problems
        page.evaluate("document.body.setAttribute('style', 'color: red')")
        page.until(lambda: any("style-src" in each for each in page.problems), 5, lambda: str(page.problems))
