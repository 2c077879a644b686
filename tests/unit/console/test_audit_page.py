"""The console's audit log: filters, pages, and the same as data."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from ami.queues.models import AuditEntry
from tests.support.console_pages import client, few_statements, text
from tests.support.product import factories

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
AUDIT = "/admin/queues/audit/"


def written() -> None:
    AuditEntry.objects.create(who="user 1 Ann", verb="pause", target="queue antenna-ingest", why="disk full")
    old = AuditEntry.objects.create(who="command:root", verb="park", target="node a@b", after={"parked": 1})
    AuditEntry.objects.filter(pk=old.pk).update(at=timezone.now() - timedelta(days=3))


def found(query: str) -> list[str]:
    return [row["verb"] for row in client().get(f"{AUDIT}?format=json&{query}").json()["audit"]]


def test_entries_are_listed_newest_first():
    written()
    page = text(client().get(AUDIT))
    assert page.index("disk full") < page.index("node a@b")


def test_entries_are_filtered_by_the_address():
    written()
    before = f"{timezone.now() - timedelta(days=1):%Y-%m-%dT%H:%M}"
    assert found("who=ann") == found("verb=pause") == found("target=ingest") == found(f"from={before}") == ["pause"]
    assert found(f"to={before}") == ["park"]
    assert found("") == ["pause", "park"]
    assert client().get(f"{AUDIT}?from=yesterday").status_code == 400


def test_csv_has_every_column():
    written()
    lines = client().get(f"{AUDIT}?format=csv").content.decode().splitlines()
    assert lines[0] == "at,who,verb,target,before,after,why,source,outcome"
    assert len(lines) == 3


def test_many_entries_come_in_pages_of_few_statements():
    AuditEntry.objects.bulk_create(AuditEntry(who="a", verb="pause", target=f"q{n}") for n in range(120))
    made = client()
    with few_statements():
        page = text(made.get(f"{AUDIT}?page=2&verb=pause"))
    assert "Page 2 of 3, 120 in all" in page
    assert 'href="?page=3&amp;verb=pause"' in page


def test_staff_without_permission_gets_403():
    made = Client()
    made.force_login(factories.user(is_staff=True))
    for name in ("audit", "letters", "schedule", "replays", "task/abc"):
        assert made.get(f"/admin/queues/{name}/").status_code == 403
