"""The console's handbook: docs/operations.md with anchors, and nothing that the page's policy forbids."""

import re

import pytest

from ami.console import handbook
from tests.support.console_pages import client, text
from tests.support.product.page_policy import PAGE, Inline, policy_of

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def book(name: str = handbook.START) -> handbook.Handbook:
    path = handbook.source(name)
    assert path is not None
    return handbook.handbook(path, path.stat().st_mtime_ns)


def test_every_finding_and_check_has_an_anchor():
    found = book()
    assert {"no-beat", "held", "late-tick", "dead-letters", "queues.E001"} <= found.findings
    anchors = re.findall(r' id="([^"]+)"', found.html)
    assert len(anchors) == len(set(anchors))
    assert found.findings <= set(anchors)


def test_every_link_leads_somewhere():
    made, seen = client(), {"/admin/queues/handbook/": ""}
    for address in list(seen):
        seen[address] = text(made.get(address))
    for address in set(re.findall(r'href="(/admin/queues/handbook/[^"#]+)', seen["/admin/queues/handbook/"])):
        seen[address] = text(made.get(address))
    assert len(seen) > 3
    for address, html in seen.items():
        for target, anchor in re.findall(r'href="(/admin/queues/handbook/[^"#]*)?#([^"]+)"', html):
            page = seen.get(target or address)
            assert page is None or anchor in ("content-start",) or f'id="{anchor}"' in page, (address, target, anchor)
    assert "docs/" not in str(re.findall(r'href="([^"]+)"', str(book().html)))


def test_other_files_are_no_pages():
    made = client()
    for name in ("nothing", "../README", "../config/settings/base", "..%2f..%2fREADME"):
        assert made.get(f"/admin/queues/handbook/{name}/").status_code == 404
    assert made.get("/admin/queues/handbook/admission/").status_code == 200


def test_page_complies_with_its_policy():
    answer = client().get("/admin/queues/handbook/")
    seen = Inline()
    seen.feed(text(answer))
    assert seen.found == []
    assert policy_of(answer) == PAGE
