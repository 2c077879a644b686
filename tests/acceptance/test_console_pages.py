"""Every page of the console and the admin, in a browser: no error, no violation of the policy, nothing barred."""

from collections.abc import Iterator
from random import Random

import pytest
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from ami.jobs.models import Job
from ami.main.models import SourceImage
from ami.queues.models import AuditEntry, DesiredState, Letter, TaskFailure, TaskRun, TickClaim, Worker
from tests.support.browser import accessibility, chromium, site
from tests.support.browser.chromium import Chromium
from tests.support.browser.page import DESK, PHONE, Page
from tests.support.place import Place
from tests.support.product import admin_rows
from tests.support.product.admin_pages import MODELS, address
from tests.support.screenshots import calls
from tests.support.soak import soak

pytestmark = pytest.mark.django_db(transaction=True)

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
        reverse("console:worker", args=["n" * 200]),
        reverse("console:task", args=[run.task_id]),
        reverse("console:task", args=["a" + "n" * 200]),
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
    for size in (DESK, PHONE):
        page.resize(size)
        if page.overhang > 0:
            found.append(f"{page.overhang} px wider than {size}: {page.widest()}")
    # The captures of this test have no files.
    missing = ("/thumbnail/", "/crop/", "/preview/")
    problems = [each for each in page.problems if not any(part in each for part in missing)]
    return [f"{path}: {each}" for each in (*found, *problems)]


def names_without_spaces() -> None:
    """Write what has the longest names that there may be, and no place to break them."""
    name, now = "n" * 200, timezone.now()
    Letter.objects.update(exception=name, cause_text=name, place=name, detail=name, task=name, arguments=name)
    TaskFailure.objects.update(message=name * 4, exception=name, place=name, node=name)
    Worker.objects.create(
        node=name,
        host=name,
        service=name,
        queues=[QUEUE, name],
        version=name,
        pid=1,
        started_at=now,
        seen_at=Now(),
        running=[{"id": name, "name": name, "pid": 1, "started_at": now.timestamp(), "progress": name}],
        verdict="dead",
    )
    TaskRun.objects.create(task_id=f"a{name}", task=name, node=name, progress=name, started_at=now, seen_at=Now())
    AuditEntry.objects.create(who=name, verb="pause", target=name, why=name, source="console", before={name: 1})
    wish = {"value": 1, "by": name, "why": name, "since": Now()}
    DesiredState.objects.create(kind="queue", name="antenna-housekeeping", aspect="paused", **wish)
    DesiredState.objects.create(kind="node", name=name, aspect="parked", **wish)
    entry = PeriodicTask.objects.create(
        name=name, task=name, interval=IntervalSchedule.objects.create(every=1, period="hours")
    )
    TickClaim.objects.update_or_create(entry=entry, defaults={"number": 1, "task_id": name, "claimed_at": now})


def test_no_page_has_faults(database_place: Place, browser: Chromium):
    database_place.queues("declare")
    admin_rows.everything()
    Letter.objects.update(cause="c0ffee")
    names_without_spaces()
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
