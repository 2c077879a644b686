"""Every page of the admin and of the console, in a browser: no error, no violation of the policy, nothing barred."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.urls import reverse

from tests.support.browser import accessibility, chromium, site
from tests.support.browser.chromium import Chromium
from tests.support.browser.page import DESK, PHONE, Page
from tests.support.place import Place
from tests.support.product import admin_rows
from tests.support.product.admin_pages import MODELS, address
from tests.support.soak import soak

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium.running(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def console_pages() -> list[str]:
    names = ("overview", "workers", "letters", "letter_list", "replays", "schedule", "audit", "handbook")
    return [reverse(f"console:{name}") for name in names]


def admin_pages() -> list[str]:
    lists = [address(model, "changelist") for model in MODELS]
    return ["/admin/", "/admin/password_change/", *lists]


def faults(page: Page, path: str) -> list[str]:
    """Return all that is wrong with a page, on a desk and a phone, in light and dark."""
    page.problems.clear()
    page.resize(DESK)
    page.open(path)
    found = accessibility.violations(page)
    page.resize(DESK, dark=True)
    found += [f"dark: {each}" for each in accessibility.violations(page) if each not in found]
    page.resize(PHONE)
    if page.overhang > 0:
        found.append(f"{page.overhang} px wider than a phone: {page.widest()}")
    return [f"{path}: {each}" for each in (*found, *page.problems)]


def test_no_page_has_faults(database_place: Place, browser: Chromium):
    database_place.queues("declare")
    admin_rows.everything()
    site.operator()
    web = site.web_at(database_place)
    with site.signed_in(browser, web.url, site.OPERATOR) as page:
        found = [fault for path in (*console_pages(), *admin_pages()) for fault in faults(page, path)]
    assert not found, "\n".join(found)
