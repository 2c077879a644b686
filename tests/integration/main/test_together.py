"""Concurrent workers on the same rows, on a database that supports it."""

import threading

import pytest
from django.db import connection

from ami.exports.models import DataExport
from ami.exports.services import writer
from ami.main.models import Deployment, Event, SourceImageCollection
from ami.main.services import capture_sets, sessions, stale_marks
from tests.support.product import factories
from tests.support.product.factories import Turn
from tests.support.product.stale import marked, recount_marked

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def media(tmp_path, settings):
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        pytest.skip("threads share one in-memory SQLite cache, whose table locks do not wait: use PostgreSQL")
    settings.MEDIA_ROOT = str(tmp_path)


def together(*works):
    """Run each function in a thread with its own database connection; raise the error of any."""
    barrier, errors = threading.Barrier(len(works)), []

    def run(work):
        try:
            barrier.wait(60)
            work()
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors, errors


def test_two_recounts_leave_right_counts_and_no_marks():
    stations = [factories.station() for _ in range(5)]
    for station in stations:
        factories.captures(station, 3)
    stale_marks.mark_stale("deployment", [station.pk for station in stations])
    together(recount_marked, recount_marked)
    assert set(Deployment.objects.values_list("captures_count", flat=True)) == {3}
    assert not marked()


def test_capture_added_during_a_recount_is_counted_finally():
    station = factories.station()

    def ingest():
        for _ in range(20):
            factories.capture(station)
            stale_marks.mark_stale("deployment", [station.pk])

    def flush():
        for _ in range(20):
            recount_marked()

    together(ingest, flush, flush)
    recount_marked()
    station.refresh_from_db()
    assert station.captures_count == 20
    assert not marked()


def test_concurrent_regroups_of_a_station_make_one_grouping_incident_46(monkeypatch):
    monkeypatch.setattr(sessions, "STEP_CAPTURES", 5)
    station = factories.station()
    factories.captures(station, 40, every_minutes=60)

    def regroup():
        sessions.regroup(station.pk, Turn())

    together(*[regroup] * 4)
    recount_marked()
    assert not station.captures.filter(event=None).exists()
    assert sum(Event.objects.values_list("captures_count", flat=True)) == 40


def test_two_workers_populate_one_set():
    station = factories.station()
    factories.captures(station, 30)
    chosen = SourceImageCollection.objects.create(name="Set", project=station.project)
    together(*[lambda: capture_sets.populate(chosen, Turn())] * 3)
    assert chosen.images.count() == 30


def test_two_workers_write_one_export(monkeypatch):
    monkeypatch.setattr(writer, "BATCH", 3)
    monkeypatch.setattr(writer, "PART_ROWS", 6)
    station = factories.station()
    expected = [factories.occurrence(factories.capture(station), factories.taxon()).pk for _ in range(30)]
    export = DataExport.objects.create(project=station.project, format="occurrences_simple_csv")

    def write():
        assert writer.advance(DataExport.objects.get(pk=export.pk), Turn())

    together(*[write] * 3)
    export.refresh_from_db()
    with writer.default_storage.open(export.file_path) as file:
        lines = file.read().decode().splitlines()[1:]
    assert [int(line.split(",")[0]) for line in lines] == expected
    assert export.record_count == 30
