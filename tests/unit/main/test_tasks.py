"""The core's tasks: names, routes, slices, jobs."""

import pytest
from celery import current_app
from django.conf import settings

from ami.jobs.models import Job
from ami.jobs.services.job_kinds import kind_of
from ami.main import tasks
from ami.main.models import SourceImage, SourceImageCollection
from ami.main.services import bulk_deletion, sessions
from tests.support.product import factories
from tests.support.product.factories import Turn
from tests.support.product.image_files import SMALLEST_JPEG
from tests.support.product.stale import marked

INGEST, HOUSEKEEPING, INTERACTIVE = "antenna-ingest", "antenna-housekeeping", "antenna-interactive"


@pytest.mark.parametrize(
    ("name", "queue"),
    [
        ("refresh_event_calculated_fields", INGEST),
        ("refresh_deployment_calculated_fields", INGEST),
        ("refresh_project_calculated_fields", INGEST),
        ("update_counts", HOUSEKEEPING),
        ("update_public_urls", HOUSEKEEPING),
        ("regroup_events", HOUSEKEEPING),
        ("sync_source_images", HOUSEKEEPING),
        ("populate_collection", INTERACTIVE),
        ("bulk_delete", INTERACTIVE),
    ],
)
def test_task_is_routed_to_its_queue_and_for_users_to_interactive(name, queue):
    task = f"ami.main.tasks.{name}"
    assert task in current_app.tasks
    assert settings.ANTENNA_TOPOLOGY.place(task, "task").queue == queue
    assert settings.ANTENNA_TOPOLOGY.place(task, "person").queue == INTERACTIVE


@pytest.fixture
def one_step_slices(monkeypatch):
    monkeypatch.setattr(tasks, "Slice", lambda task, **_: Turn(1))


def run_to_the_end(task, published, **kwargs):
    """Run the task and each published successor; return the number of runs."""
    ran = 0
    queue = [kwargs]
    while queue:
        task.apply(kwargs=queue.pop(), throw=True)
        ran += 1
        assert ran < 30
        queue += published
        published.clear()
    return ran


@pytest.fixture
def published(monkeypatch):
    messages = []
    monkeypatch.setattr(tasks, "publish_successor", lambda task, **kwargs: messages.append(kwargs))
    return messages


@pytest.mark.django_db
@pytest.mark.sqlite
def test_public_urls_change_in_slices(one_step_slices, published, monkeypatch):
    monkeypatch.setattr("ami.main.services.public_urls.BATCH", 2)
    station = factories.station()
    factories.captures(station, 5)
    other = factories.capture(factories.station())
    assert run_to_the_end(tasks.update_public_urls, published, deployment_id=station.pk, base_url="https://new") > 2
    assert set(station.captures.values_list("public_base_url", flat=True)) == {"https://new"}
    other.refresh_from_db()
    assert other.public_base_url == ""


@pytest.mark.django_db
def test_regrouping_is_done_in_slices(one_step_slices, published, monkeypatch):
    monkeypatch.setattr(sessions, "STEP_CAPTURES", 2)
    station = factories.station()
    factories.captures(station, 5)
    assert run_to_the_end(tasks.regroup_events, published, deployment_id=station.pk) > 2
    assert station.events.get().captures.count() == 5


@pytest.mark.django_db
def test_a_project_is_counted_in_slices(one_step_slices, published):
    station = factories.station()
    factories.captures(station, 3)
    factories.station(station.project)
    assert run_to_the_end(tasks.refresh_project_calculated_fields, published, project_id=station.project_id) >= 2
    station.refresh_from_db()
    assert station.captures_count == 3


@pytest.mark.django_db
def test_tasks_of_deleted_rows_do_nothing(published):
    deleted = 987654
    tasks.populate_collection.apply(kwargs={"collection_id": deleted}, throw=True)
    tasks.bulk_delete.apply(kwargs={"deletion_id": deleted}, throw=True)
    tasks.sync_source_images.apply(kwargs={"deployment_id": deleted}, throw=True)
    tasks.refresh_event_calculated_fields.apply(kwargs={"event_id": deleted}, throw=True)
    assert not published


def job(kind, project, **fields):
    return Job.objects.create(name=kind, project=project, job_type_key=kind, status="STARTED", **fields)


def advance(work):
    """Run slices of the job until it is finished; return their number."""
    slices = 1
    while not kind_of(work.job_type_key).advance(Job.objects.get(pk=work.pk), Turn(1)):
        slices += 1
        assert slices < 30
    work.refresh_from_db()
    return slices


@pytest.mark.django_db
def test_the_job_that_populates():
    station = factories.station()
    factories.captures(station, 3)
    chosen = SourceImageCollection.objects.create(name="Set", project=station.project)
    work = job("populate_captures_collection", station.project, source_image_collection=chosen)
    advance(work)
    assert chosen.images.count() == 3
    assert (work.done, work.total) == (3, 3)


@pytest.mark.django_db
def test_sync_job_ends_after_its_sessions_are_grouped_incident_46(tmp_path, settings):
    from ami.main.models import S3StorageSource

    settings.ANTENNA_LOCAL_SOURCE_ROOTS = [str(tmp_path)]
    (tmp_path / "20260601220000.jpg").write_bytes(SMALLEST_JPEG)
    (tmp_path / "20010101000000.jpg.part").write_bytes(SMALLEST_JPEG)
    (tmp_path / "moth.jpg").write_bytes(SMALLEST_JPEG)
    source = S3StorageSource.objects.create(name="Folder", endpoint_url=f"file://{tmp_path}")
    station = factories.station(data_source=source)
    work = job("data_storage_sync", station.project, deployment=station)
    assert advance(work) >= 2
    assert station.events.get().captures.count() == 1
    assert work.cursor["stage"] == "regroup"
    assert (work.done, work.total) == (1, 1)
    assert set(work.log_entries.values_list("message", flat=True)) >= {
        "1 captures synced, 1 files skipped.",
        "Skipped, no time in the name or the EXIF data: 1, such as moth.jpg.",
    }


@pytest.mark.django_db
@pytest.mark.sqlite
def test_regroup_job_waits_for_the_stations_lease_incident_46(monkeypatch):
    from ami.jobs.services import core_jobs
    from ami.queues import named_leases

    station = factories.station()
    factories.capture(station)
    work = job("regroup_events", station.project, deployment=station)
    assert named_leases.take(f"regroup:{station.pk}", "another worker", 60)
    monkeypatch.setattr(core_jobs, "HELD_PAUSE_SECONDS", 0)
    assert not core_jobs.regroup_events(Job.objects.get(pk=work.pk), Turn())
    named_leases.release(f"regroup:{station.pk}", "another worker")
    advance(work)
    assert station.events.count() == 1
    assert not [pk for kind, pk in marked() if kind == "sessions"]


@pytest.mark.django_db
def test_the_job_that_deletes():
    captures = factories.captures(factories.station(), 3)
    deletion = bulk_deletion.request_deletion("captures", [capture.pk for capture in captures], None)
    work = job("bulk_delete", captures[0].project, params={"deletion_id": deletion.pk})
    advance(work)
    assert not SourceImage.objects.exists()
    assert work.done == work.total == 3


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["populate_captures_collection", "data_storage_sync", "regroup_events", "bulk_delete"])
def test_job_without_its_object_fails_with_the_reason(kind):
    work = job(kind, factories.project())
    with pytest.raises(ValueError, match="is missing or was deleted"):
        kind_of(kind).advance(work, Turn())
