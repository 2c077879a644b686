"""The console's handbook: docs/operations.md with anchors, and nothing that the page's policy forbids."""

import pytest

from ami.console import handbook
from tests.support.console_pages import client, text
from tests.support.product.page_policy import PAGE, Inline, policy_of

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def book() -> handbook.Handbook:
    path = handbook.source()
    return handbook.handbook(path, path.stat().st_mtime_ns)


def test_every_finding_and_check_has_an_anchor():
    found = book()
    assert {"no-beat", "held", "late-tick", "dead-letters", "queues.E001"} <= found.findings
    assert all(f'<tr id="finding-{name}">' in found.html for name in found.findings)
    assert handbook.finding_address("no-beat") == "/admin/queues/handbook/#finding-no-beat"


def test_links_within_the_page_lead_somewhere():
    import re

    html = str(book().html)
    anchors = set(re.findall(r' id="([^"]+)"', html))
    assert {each for each in re.findall(r'href="#([^"]+)"', html)} - anchors == set()
    assert re.findall(r'href="(?!#|https?://)', html) == []


def test_page_complies_with_its_policy():
    answer = client().get("/admin/queues/handbook/")
    seen = Inline()
    seen.feed(text(answer))
    assert seen.found == []
    assert policy_of(answer) == PAGE
