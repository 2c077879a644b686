"""Requests for exports: by users through the API and the admin, by beat through schedules."""

from datetime import timedelta

import pytest
from celery.app.task import Task
from django.conf import settings
from django.core.files.storage import default_storage
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from ami.exports import tasks
from ami.exports.models import DataExport, ScheduledExport
from ami.exports.services import requests, writer
from ami.jobs.models import Job
from ami.jobs.services.job_kinds import kind_of
from ami.main.models import SourceImageCollection
from tests.support.product import factories
from tests.support.product.factories import Turn

pytestmark = pytest.mark.django_db
PATH = "/api/v2/exports/"
CSV = "occurrences_simple_csv"


def post(client, project, **fields):
    return client.post(PATH, {"project": project.pk, "format": CSV, **fields}, format="json")


def test_request_creates_an_export_and_its_job_without_counting(client, project):
    with CaptureQueriesContext(connection) as queries:
        answer = post(client, project)
    assert answer.status_code == 201
    body = answer.json()
    assert set(body["job"]) == {"id", "name", "project", "progress", "result"}
    assert [stage["key"] for stage in body["job"]["progress"]["stages"]] == ["exporting", "uploading"]
    assert body["record_count"] is None
    assert not [query for query in queries if "main_occurrence" in query["sql"]]


def test_job_writes_the_export_and_stores_its_url(client, project):
    factories.occurrence(factories.capture(factories.station(project)), factories.taxon())
    body = post(client, project).json()
    Job.objects.update(status="STARTED")
    advance = kind_of("data_export").advance
    slices = 1
    while not advance(Job.objects.get(), Turn(1)):
        slices += 1
        assert slices < 10
    job = Job.objects.get()
    assert job.result["record_count"] == job.done == job.total == 1
    # The stored URL needs a token; the URL in a response is newly signed.
    assert job.result["file_url"] == f"{settings.ANTENNA_PUBLIC_URL}{PATH}{body['id']}/file/"
    assert (
        client.get(f"{PATH}{body['id']}/")
        .json()["file_url"]
        .startswith(f"http://testserver{PATH}{body['id']}/file/?expires=")
    )


def test_job_that_is_run_again_rewrites_the_export(client, project):
    post(client, project)
    Job.objects.update(status="STARTED")
    advance = kind_of("data_export").advance
    while not advance(Job.objects.get(), Turn()):
        pass
    Job.objects.update(cursor={})
    factories.occurrence(factories.capture(factories.station(project)), factories.taxon())
    while not advance(Job.objects.get(), Turn()):
        pass
    assert DataExport.objects.get().record_count == 1


def test_job_of_a_deleted_export_fails_with_the_reason(client, project):
    post(client, project)
    DataExport.objects.all().delete()
    with pytest.raises(ValueError, match="the export was deleted"):
        kind_of("data_export").advance(Job.objects.get(), Turn())


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"format": "xlsx"}, "format"),
        ({"filters": []}, "filters"),
        ({"filters": {"taxon": 1}}, "taxon"),
        ({"filters": {"collection_id": "1"}}, "collection_id"),
        ({"filters": {"collection_id": 987654}}, "collection_id"),
        ({"filters": {"collection_id": 10**30}}, "collection_id"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_field(client, project, fields, field):
    answer = post(client, project, **fields)
    assert answer.status_code == 400
    assert field in answer.content.decode()
    assert not DataExport.objects.exists()
    assert not Job.objects.exists()


def test_a_capture_set_of_another_project_does_not_exist(client, project):
    theirs = SourceImageCollection.objects.create(name="Theirs", project=factories.project())
    answer = post(client, project, filters={"collection_id": theirs.pk})
    assert answer.status_code == 400
    assert "collection_id" in answer.json()["filters"]


def test_a_strangers_project_cannot_be_exported(client):
    assert "project" in post(client, factories.project()).json()


def test_deleting_an_export_deletes_its_file_and_strangers_cannot(client, project, django_capture_on_commit_callbacks):
    pk = post(client, project).json()["id"]
    export = DataExport.objects.get()
    writer.advance(export, Turn())
    stranger = APIClient()
    stranger.force_authenticate(factories.user())
    assert stranger.delete(f"{PATH}{pk}/").status_code == 404
    with django_capture_on_commit_callbacks(execute=True):
        assert client.delete(f"{PATH}{pk}/").status_code == 204
    assert not default_storage.exists(export.file_path)


@pytest.mark.parametrize(("origin", "queue"), [("person", "antenna-interactive"), ("beat", "antenna-housekeeping")])
def test_exports_of_users_and_of_beat_use_different_queues(origin, queue):
    assert settings.ANTENNA_TOPOLOGY.place("ami.exports.tasks.run_export", origin).queue == queue


def schedule(project, **fields):
    return ScheduledExport.objects.create(name="Daily", project=project, format=CSV, **fields)


def test_due_schedule_creates_one_export_and_advances(project):
    daily = schedule(project)
    (pk,) = requests.due_exports()
    assert not requests.due_exports()
    daily.refresh_from_db()
    assert daily.last_export_id == pk
    assert daily.next_run_at > timezone.now() + timedelta(hours=23)


@pytest.mark.sqlite
def test_concurrent_ticks_create_one_export(project):
    daily = schedule(project)
    stale_copy = ScheduledExport.objects.get(pk=daily.pk)
    ScheduledExport.objects.filter(pk=daily.pk).update(next_run_at=timezone.now() - timedelta(hours=1))
    assert requests._run_schedule(ScheduledExport.objects.get()) is not None
    assert requests._run_schedule(stale_copy) is None
    assert DataExport.objects.count() == 1


def test_disabled_or_early_schedule_creates_no_export(project):
    schedule(project, enabled=False)
    schedule(project, next_run_at=timezone.now() + timedelta(hours=1))
    assert not requests.due_exports()


def test_schedule_with_a_deleted_capture_set_is_disabled(project):
    daily = schedule(project, filters={"collection_id": 987654})
    assert not requests.due_exports()
    daily.refresh_from_db()
    assert not daily.enabled


@pytest.mark.sqlite
def test_a_scheduled_export_whose_message_was_lost_is_published_again(project):
    schedule(project)
    (pk,) = requests.due_exports()
    DataExport.objects.update(created_at=timezone.now() - timedelta(hours=1))
    assert requests.due_exports() == {pk: project.pk}
    writer.advance(DataExport.objects.get(), Turn())
    assert not requests.due_exports()


def test_beats_tick_publishes_with_its_own_origin(project, monkeypatch, django_capture_on_commit_callbacks):
    schedule(project)
    sent = []
    monkeypatch.setattr(Task, "apply_async", lambda task, **options: sent.append(options))
    with django_capture_on_commit_callbacks(execute=True):
        assert tasks.run_scheduled_exports.apply(headers={"antenna_origin": "beat"}, throw=True).result == 1
    assert sent[0]["headers"] == {"antenna_origin": "beat"}
    assert sent[0]["kwargs"] == {"export_id": DataExport.objects.get().pk, "project_id": project.pk}


def test_a_long_export_publishes_its_successor(project, monkeypatch):
    monkeypatch.setattr(tasks, "Slice", lambda task, **_: Turn(1))
    later = []
    monkeypatch.setattr(tasks, "publish_successor", lambda task, **kwargs: later.append(kwargs))
    export = DataExport.objects.create(project=project, format=CSV)
    tasks.run_export.apply(kwargs={"export_id": export.pk, "project_id": export.project_id}, throw=True)
    assert later == [{"export_id": export.pk, "project_id": project.pk}]
    tasks.run_export.apply(kwargs=later[0], throw=True)
    export.refresh_from_db()
    assert export.finished_at


def test_run_again_in_the_admin_starts_over(project, monkeypatch):
    from django.test import Client
    from django.urls import reverse

    export = DataExport.objects.create(project=project, format=CSV)
    writer.advance(export, Turn())
    browser = Client()
    browser.force_login(factories.user(is_staff=True, is_superuser=True))
    path = reverse("admin:exports_dataexport_changelist")
    answer = browser.post(path, {"action": "run_again", "_selected_action": [export.pk]}, follow=True)
    export.refresh_from_db()
    assert export.finished_at is None
    assert "antenna-interactive" in answer.content.decode()
