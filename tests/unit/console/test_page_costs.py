"""Every page of the console, over many rows: it answers with at most fifteen statements."""

import pytest
from celery import current_app
from django.contrib.auth.models import Permission
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from ami.console import urls
from ami.telemetry import findings
from ami.telemetry.models import SharedValue
from ami.telemetry.snapshots import shared
from tests.support import console_rows
from tests.support.brokers import celery_at
from tests.support.console_pages import MOST_STATEMENTS, client
from tests.support.product.admin_pages import one_list_of_apps

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
LETTERS, ENTRIES, WORKERS, IMAGES = 240, 120, 12, 5
#: One of those who watch takes it, at most every 1.5 s. Three of them are about who does.
SNAPSHOT_STATEMENTS = 14


@pytest.fixture
def rows(monkeypatch, fresh_watchers):
    with celery_at("objectstore+memory://console-costs"):
        current_app.declare_everything()
        console_rows.seed(LETTERS, ENTRIES, WORKERS, IMAGES)
        # No other thread looks for findings.
        monkeypatch.setattr(findings, "FRESH_SECONDS", 3600.0)
        SharedValue.objects.create(name=findings.NAME, value=[], made_at=Now())
        shared.forget()
        shared.current()
        yield
        shared.forget()


def everyone_with_permissions() -> Client:
    """A user of the staff with every permission, each of which is looked up."""
    return client(*Permission.objects.values_list("codename", flat=True))


def statements(browser: Client, address: str) -> list[str]:
    with CaptureQueriesContext(connection) as seen:
        answer = browser.get(address)
        # The rows of an answer in pieces are read when it is sent.
        assert answer.getvalue()
    assert answer.status_code == 200, (address, answer.status_code)
    return [each["sql"] for each in seen]


def test_every_page_is_listed_and_takes_few_statements(rows, monkeypatch):
    known = console_rows.addresses()
    assert {name for name, found in known.items() if found} == {pattern.name for pattern in urls.urlpatterns}
    browser = everyone_with_permissions()
    # Others share the snapshot, which is measured below.
    for fresh in ("console.page.FRESH", "console.polls.FRESH", "telemetry.snapshots.shared.MEMO"):
        monkeypatch.setattr(f"ami.{fresh}_SECONDS", 3600.0)
    with one_list_of_apps():
        took = {address: statements(browser, address) for _, address in console_rows.all_addresses()}
    assert {address: made for address, made in took.items() if len(made) > MOST_STATEMENTS} == {}


def test_snapshot_that_all_share_takes_few_statements(rows):
    with CaptureQueriesContext(connection) as seen:
        shared.current(0.0)
    assert len(shared.current().workers) == WORKERS
    assert len(seen) <= SNAPSHOT_STATEMENTS, [each["sql"][:200] for each in seen]
