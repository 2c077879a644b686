"""The way in: what each page leads to, its icon, and what the index leaves out because it is empty."""

from types import SimpleNamespace

import pytest
from celery import current_app
from django.contrib import admin
from django.test import Client
from django.urls import reverse
from django_celery_results.backends import DatabaseBackend
from django_celery_results.models import TaskResult

from tests.support.product import factories
from tests.support.product.page_policy import Inline, policy_of

pytestmark = pytest.mark.django_db(transaction=True)

ICON = '<link rel="icon" type="image/svg+xml" href="/favicon.ico">'
DOCS = "/api/v2/docs/"


def text(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return str(answer.content.decode())


def test_every_page_leads_to_queues_jobs_api_and_flower(browser, settings):
    settings.FLOWER_URL = "https://flower.example"
    for address in (reverse("admin:index"), reverse("admin:jobs_job_changelist"), reverse("console:overview")):
        page = text(browser, address)
        for wanted in (reverse("console:overview"), reverse("admin:jobs_job_changelist"), DOCS, settings.FLOWER_URL):
            assert f'href="{wanted}"' in page, (address, wanted)


def test_no_page_leads_to_a_flower_that_is_not_there(browser, settings):
    settings.FLOWER_URL = ""
    assert "Flower" not in text(browser, reverse("admin:index"))


def test_every_page_has_the_name_and_the_icon(browser):
    for client, address in (
        (browser, reverse("admin:index")),
        (browser, reverse("console:overview")),
        (browser, DOCS),
        (Client(), reverse("admin:login")),
    ):
        page = text(client, address)
        assert ICON in page, address
        assert "Antenna" in page
    assert browser.get("/favicon.ico").headers["Content-Type"] == "image/svg+xml"


def test_api_docs_are_for_those_who_may_read_the_schema(browser):
    for client in (browser, Client()):
        assert client.get(reverse("schema")).status_code == 200
        assert f'data-schema="{reverse("schema")}"' in text(client, DOCS)
    assert browser.post(DOCS).status_code == 405


def test_api_docs_keep_the_policy_of_pages(browser):
    answer = browser.get(DOCS)
    policy = policy_of(answer)
    assert (policy["script-src"], policy["style-src"], policy["img-src"]) == ("'self'", "'self'", "'self' data:")
    page = Inline()
    page.feed(answer.content.decode())
    assert page.found == []


def test_results_are_listed_where_the_database_has_some(browser, monkeypatch):
    address = reverse("admin:django_celery_results_taskresult_changelist")
    index = reverse("admin:index")
    TaskResult.objects.create(task_id="a", status="SUCCESS", result="1")
    assert address not in text(browser, index)
    kept = DatabaseBackend(app=current_app._get_current_object())
    monkeypatch.setattr("ami.queues.admin.current_app", SimpleNamespace(backend=kept))
    assert address in text(browser, index)
    TaskResult.objects.all().delete()
    assert address not in text(browser, index)
    assert browser.get(address).status_code == 200


def test_single_moments_and_solar_events_are_reached_from_an_entry(browser):
    index = text(browser, reverse("admin:index"))
    form = text(browser, reverse("admin:django_celery_beat_periodictask_add"))
    for name in ("solarschedule", "clockedschedule"):
        address = reverse(f"admin:django_celery_beat_{name}_add")
        assert address not in index
        assert address in form
        assert browser.get(address).status_code == 200


def test_index_names_plurals_as_people_do(browser):
    index = text(browser, reverse("admin:index"))
    assert "attemptss" not in index
    assert "letterss" not in index


def test_viewer_is_led_to_what_they_may_see(reader):
    assert reverse("console:overview") in text(reader, reverse("admin:index"))


def test_nobody_is_led_anywhere_before_signing_in():
    client = Client()
    client.force_login(factories.user())
    assert reverse("console:overview") not in text(Client(), reverse("admin:login"))
    assert admin.site.site_url is None
