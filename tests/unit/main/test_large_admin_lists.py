"""The admin's lists of large tables: in the order of an index, bounded, and searched by index."""

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client

from ami.jobs.models import JobImage
from ami.main.admin import large_lists
from ami.main.models import Classification, Occurrence, SourceImage, SourceImageCollection
from ami.main.services import bounded_counts
from tests.support.product import factories
from tests.support.product.admin_pages import address
from tests.support.product.job_setup import new_world

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


@pytest.fixture
def browser():
    browser = Client()
    browser.force_login(factories.user(is_staff=True, is_superuser=True))
    return browser


def shown(browser, model, **query):
    """Return the keys on a page of a list."""
    answer = browser.get(address(model, "changelist"), query)
    assert answer.status_code == 200, answer.headers
    return [row.pk for row in answer.context["cl"].result_list]


def test_pages_have_the_order_of_the_list_whatever_the_address_asks(browser, monkeypatch):
    monkeypatch.setattr("ami.main.admin.captures.SourceImageAdmin.list_per_page", 2)
    factories.captures(factories.station(), 5)
    keys = list(SourceImage.objects.values_list("pk", flat=True))
    assert [shown(browser, SourceImage, p=page) for page in (1, 2, 3)] == [keys[:2], keys[2:4], keys[4:]]
    assert shown(browser, SourceImage, o="-5") == keys[:2]


def test_pages_end_where_an_offset_would_be_too_large(browser, monkeypatch):
    monkeypatch.setattr("ami.main.admin.captures.SourceImageAdmin.list_per_page", 2)
    monkeypatch.setattr(large_lists, "EXACT_UP_TO", 2)
    factories.captures(factories.station(), 7)
    assert len(shown(browser, SourceImage, p=2)) == 2
    assert browser.get(address(SourceImage, "changelist"), {"p": 3}).status_code == 302


def test_every_match_is_on_one_page_when_there_are_few(browser):
    captures = factories.captures(factories.station(), 3)
    other = factories.capture(factories.station())
    keys = [capture.pk for capture in captures]
    assert shown(browser, SourceImage, project__id__exact=captures[0].project_id) == keys
    assert shown(browser, SourceImage, q=other.path) == [other.pk]


def test_short_search_text_finds_nothing_and_says_why(browser):
    factories.capture(factories.station(), path="a.jpg")
    answer = browser.get(address(SourceImage, "changelist"), {"q": "a"})
    assert list(answer.context["cl"].result_list) == []
    assert "3 to 200 characters" in str(next(iter(get_messages(answer.wsgi_request))))


@pytest.mark.parametrize("model", [Classification, Occurrence])
def test_lists_show_few_columns_and_forms_all(browser, model, django_assert_max_num_queries):
    for _ in range(5):
        factories.occurrence(factories.capture(factories.station()), factories.taxon(), 0.9)
    with django_assert_max_num_queries(12):
        assert len(shown(browser, model)) == 5
    assert browser.get(address(model, "change", model.objects.first().pk)).status_code == 200


def test_images_are_found_by_the_number_of_their_job(browser):
    world = new_world()
    first, second = (world.running(world.captures(2)) for _ in "ab")
    keys = set(JobImage.objects.filter(job=second).values_list("pk", flat=True))
    assert set(shown(browser, JobImage, q=second.pk)) >= keys
    assert not keys & set(shown(browser, JobImage, q=10**15))
    assert shown(browser, JobImage, q="no number") == []
    image = JobImage.objects.filter(job=second).first()
    of_capture = set(JobImage.objects.filter(source_image=image.source_image_id).values_list("pk", flat=True))
    assert set(shown(browser, JobImage, q=f"capture {image.source_image_id}")) == of_capture
    page = browser.get(address(JobImage, "changelist"), {"q": first.pk})
    assert [spec.title for spec in page.context["cl"].filter_specs] == ["state"]


def test_a_set_of_many_captures_is_counted_up_to_a_bound(browser, monkeypatch):
    station = factories.station()
    chosen = SourceImageCollection.objects.create(name="Set", project=station.project)
    chosen.images.add(*factories.captures(station, 3))
    assert '<td class="field-captures">3</td>' in page_of_sets(browser)
    monkeypatch.setattr("ami.main.admin.captures.EXACT_UP_TO", 2)
    assert "more than 2" in page_of_sets(browser)


def page_of_sets(browser):
    return browser.get(address(SourceImageCollection, "changelist")).content.decode()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no estimate")
def test_estimate_is_of_the_filtered_rows():
    factories.captures(factories.station(), 3)
    assert bounded_counts.estimate(SourceImage.objects.filter(pk=0)) <= 1
