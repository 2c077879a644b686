"""The core's admin: every page opens, and every action reports task, queue and link."""

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.messages import get_messages
from django.urls import reverse

from ami.main.models import BulkDeletion, S3StorageSource, SourceImage, SourceImageCollection
from tests.support.product import factories
from tests.support.product.image_files import SMALLEST_JPEG

pytestmark = pytest.mark.django_db

MODELS = [model for label in ("main", "exports") for model in apps.get_app_config(label).get_models()]
HIDDEN = {"ExportPart"}


@pytest.fixture
def superuser(client_class=None):
    return factories.user(is_staff=True, is_superuser=True)


@pytest.fixture
def browser(superuser):
    from django.test import Client

    browser = Client()
    browser.force_login(superuser)
    return browser


def act(browser, model, action, *rows):
    """Run an admin action on rows; return the response and the messages shown."""
    path = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    answer = browser.post(path, {"action": action, "_selected_action": [row.pk for row in rows]})
    return answer, [str(message) for message in get_messages(answer.wsgi_request)]


def test_every_model_is_registered():
    registered = {model.__name__ for model in admin.site._registry}
    assert {model.__name__ for model in MODELS} - HIDDEN <= registered


@pytest.mark.parametrize("model", [model for model in MODELS if model.__name__ not in HIDDEN])
@pytest.mark.parametrize("page", ["changelist", "add"])
def test_every_page_opens(browser, model, page):
    factories.occurrence(factories.capture(factories.station()), factories.taxon())
    answer = browser.get(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"))
    closed = {"ApiToken", "Lease", "LoginAttempts", "BulkDeletion"}
    may_not_add = model.__name__ in closed and page == "add"
    assert answer.status_code == (403 if may_not_add else 200)


@pytest.mark.parametrize(
    ("make", "action", "task"),
    [
        (lambda: factories.station(), "refresh_counts", "ami.main.tasks.refresh_deployment_calculated_fields"),
        (lambda: factories.station(), "regroup", "ami.main.tasks.regroup_events"),
        (
            lambda: factories.station(data_source=S3StorageSource.objects.create(name="Folder")),
            "sync",
            "ami.main.tasks.sync_source_images",
        ),
        (
            lambda: factories.station(data_source=S3StorageSource.objects.create(name="Folder")),
            "update_public_urls",
            "ami.main.tasks.update_public_urls",
        ),
        (lambda: factories.project(), "refresh_counts", "ami.main.tasks.refresh_project_calculated_fields"),
        (lambda: factories.project(), "export_occurrences_csv", "ami.jobs.tasks.run_job"),
        (
            lambda: SourceImageCollection.objects.create(name="Set", project=factories.project()),
            "populate",
            "ami.main.tasks.populate_collection",
        ),
        (lambda: factories.capture(factories.station()), "bulk_delete", "ami.main.tasks.bulk_delete"),
    ],
)
def test_action_publishes_for_a_user_and_reports_the_queue(browser, sent, make, action, task):
    row = make()
    answer, shown = act(browser, type(row), action, row)
    assert answer.status_code == 302
    (message,) = [text for text in shown if "antenna-interactive" in text]
    assert [name for name, _ in sent] == [task]
    assert sent[0][1]["headers"]["antenna_origin"] == "person"
    assert f"/task/{sent[0][1]['task_id']}" in message


@pytest.fixture
def sent(monkeypatch, django_capture_on_commit_callbacks):
    """The messages that the admin publishes on commit; the test's transaction never commits."""
    from celery.app.task import Task

    messages = []
    monkeypatch.setattr(Task, "apply_async", lambda task, **options: messages.append((task.name, options)))
    monkeypatch.setattr("django.db.transaction.on_commit", lambda publish, **_: publish())
    return messages


def test_actions_need_their_permission(sent):
    from django.contrib.auth.models import Permission
    from django.test import Client

    reader = factories.user(is_staff=True)
    reader.user_permissions.add(*Permission.objects.filter(codename__startswith="view_"))
    browser = Client()
    browser.force_login(reader)
    capture = factories.capture(factories.station())
    for row, action in [
        (capture, "bulk_delete"),
        (capture.deployment, "sync"),
        (capture.deployment, "regroup"),
        (capture.project, "refresh_counts"),
        (capture.project, "export_occurrences_csv"),
    ]:
        act(browser, type(row), action, row)
    assert not sent
    assert not BulkDeletion.objects.exists()


def test_bulk_deletion_publishes_one_key(browser, sent):
    captures = factories.captures(factories.station(), 5)
    act(browser, SourceImage, "bulk_delete", *captures)
    deletion = BulkDeletion.objects.get()
    assert deletion.pks == [capture.pk for capture in captures]
    assert sent[0][1]["kwargs"] == {"deletion_id": deletion.pk, "project_id": captures[0].project_id}
    assert SourceImage.objects.count() == 5


def test_sources_secret_is_not_shown_and_an_empty_field_keeps_it(browser):
    source = S3StorageSource.objects.create(name="Bucket", project=factories.project(), secret_key="top-secret")
    path = reverse("admin:main_s3storagesource_change", args=[source.pk])
    assert b"top-secret" not in browser.get(path).content
    browser.post(path, {"name": "Renamed", "project": source.project_id, "secret_key": ""})
    source.refresh_from_db()
    assert (source.name, source.secret_key) == ("Renamed", "top-secret")


@pytest.fixture
def station_page(browser, tmp_path, settings):
    """The page of a station with seven files, as a function of the station's fields."""
    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(tmp_path)]
    names = (f"0{day}-08-2022_23-26-37.jpg" for day in range(1, 7))
    for name in (*names, "._01-08-2022_23-26-37.jpg", "20220810232637.jpg"):
        (tmp_path / name).write_bytes(SMALLEST_JPEG)

    def page(**fields):
        source = S3StorageSource.objects.create(name="Folder", endpoint_url=fields.pop("url", tmp_path.as_uri()))
        station = factories.station(data_source=source, **fields)
        return browser.get(reverse("admin:main_deployment_change", args=[station.pk])).content.decode()

    return page


def test_station_shows_five_names_and_what_they_become(station_page):
    page = station_page()
    assert page.count("no time in the name: a sync reads the EXIF data") == 5
    page = station_page(data_source_time_format="%d-%m-%Y_%H-%M-%S")
    assert "<code>05-08-2022_23-26-37.jpg</code> → 2022-08-05 23:26:37, the station&#x27;s time" in page
    assert page.count("<code>") == 5


def test_station_whose_source_cannot_be_listed_says_why(station_page, settings):
    assert "does not exist on this machine" in station_page(data_source_subdir="missing")
    settings.ANTENNA_ALLOWED_ENDPOINTS = ("127.0.0.1",)
    assert "The storage source does not answer: " in station_page(url="http://127.0.0.1:9")


def test_station_with_unlikely_times_warns(station_page):
    early = factories.NIGHT.replace(year=2001)
    page = station_page(first_capture_timestamp=early, last_capture_timestamp=factories.NIGHT.replace(year=2099))
    assert "before 2010 (2001-06-01 22:00:00 UTC) and in the future (2099-06-01 22:00:00 UTC)" in page


def test_time_format_that_cannot_be_used_is_refused_in_the_form(browser):
    station = factories.station()
    body = {"name": "S", "project": station.project_id, "time_zone": "UTC", "data_source_time_format": "%d-%m"}
    answer = browser.post(reverse("admin:main_deployment_change", args=[station.pk]), body)
    assert "Needs a year, %Y or %y" in answer.content.decode()
