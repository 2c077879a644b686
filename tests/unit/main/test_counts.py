"""Calculated fields and their marks."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ami.main.models import Deployment, Event, Identification, StaleCount
from ami.main.services import counts, sessions, stale_flush, stale_marks
from tests.support.product import factories
from tests.support.product.factories import Turn

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


@pytest.fixture
def station():
    station = factories.station()
    for capture in factories.captures(station, 3):
        factories.occurrence(capture, factories.taxon(), 0.9)
        factories.null_marker(capture)
    stale_marks.mark_stale("sessions", [station.pk])
    assert sessions.regroup(station.pk, Turn()) is sessions.Outcome.DONE
    return station


def flush():
    assert stale_flush.flush(Turn())
    assert not StaleCount.objects.exists()


def test_counts_leave_null_markers_out(station):
    flush()
    event, station = Event.objects.get(), Deployment.objects.get()
    assert (event.captures_count, event.detections_count, event.occurrences_count) == (3, 3, 3)
    assert (event.start, event.end) == (factories.NIGHT, station.last_capture_timestamp)
    assert (station.captures_count, station.detections_count, station.occurrences_count) == (3, 3, 3)
    assert (station.events_count, station.taxa_count, station.data_source_total_size) == (1, 3, 30)
    assert set(station.captures.values_list("detections_count", flat=True)) == {1}


def test_a_changed_threshold_recounts_the_whole_project(station):
    flush()
    station.project.default_filters_score_threshold = 0.95
    station.project.save()
    flush()
    assert Event.objects.get().detections_count == 0
    assert Deployment.objects.get().occurrences_count == 0
    assert set(station.captures.values_list("detections_count", flat=True)) == {0}


def test_excluded_taxa_leave_the_counts_with_their_descendants(station):
    flush()
    family = factories.taxon("Family")
    found = station.occurrences.first()
    found.determination.parent = family
    found.determination.save()
    station.project.default_filters_exclude_taxa.add(family)
    flush()
    assert Event.objects.get().occurrences_count == 2
    family.projects_that_exclude_it.clear()
    station.project.default_filters_include_taxa.add(family)
    flush()
    assert Event.objects.get().occurrences_count == 1


def test_unclassified_occurrence_counts():
    station = factories.station()
    factories.occurrence(factories.capture(station))
    counts.refresh("deployment", station.pk)
    station.refresh_from_db()
    assert (station.detections_count, station.occurrences_count, station.taxa_count) == (1, 1, 0)


def test_no_keys_mean_nothing_and_never_everything_hazard_5(station):
    StaleCount.objects.all().delete()
    for kind in StaleCount.Kind.values:
        stale_marks.mark_stale(kind, [])
        stale_marks.mark_stale(kind, [None])
    assert not StaleCount.objects.exists()
    with CaptureQueriesContext(connection) as queries:
        counts.refresh_captures([])
    assert not [query for query in queries if query["sql"].startswith("UPDATE")]


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="choose one of"):
        stale_marks.mark_stale("evnt", [1])


def test_many_marks_are_one_refresh(station):
    for _ in range(50):
        stale_marks.mark_stale("deployment", [station.pk])
    StaleCount.objects.filter(kind="event").delete()
    with CaptureQueriesContext(connection) as queries:
        flush()
    updates = [query for query in queries if query["sql"].startswith('UPDATE "main_deployment"')]
    assert len(updates) == 1


def test_queries_of_a_refresh_do_not_grow_with_captures(station):
    with CaptureQueriesContext(connection) as few:
        counts.refresh("deployment", station.pk)
    for capture in factories.captures(station, 20, every_minutes=3):
        factories.occurrence(capture)
    with CaptureQueriesContext(connection) as many:
        counts.refresh("deployment", station.pk)
    assert len(many) == len(few)


def test_mark_set_during_a_refresh_stays(station, monkeypatch):
    def refresh_and_mark(kind, pk):
        counts.refresh(kind, pk)
        stale_marks.mark_stale(kind, [pk])

    StaleCount.objects.all().delete()
    stale_marks.mark_stale("deployment", [station.pk])
    monkeypatch.setattr(stale_flush, "refresh", refresh_and_mark)
    stale_flush.refresh_marked("deployment", station.pk)
    assert StaleCount.objects.count() == 1


def test_failed_refresh_keeps_its_mark_and_others_continue(station, monkeypatch, caplog):
    other = factories.station()
    StaleCount.objects.all().delete()
    stale_marks.mark_stale("deployment", [station.pk, other.pk])
    refresh = counts.refresh

    def refuse_one(kind, pk):
        if pk == station.pk:
            raise RuntimeError("cannot be counted")
        refresh(kind, pk)

    monkeypatch.setattr(stale_flush, "refresh", refuse_one)
    assert stale_flush.flush(Turn())
    assert list(StaleCount.objects.values_list("object_pk", flat=True)) == [station.pk]
    assert "cannot be counted" in caplog.text


def test_next_slice_counts_the_remaining_marks(station):
    stale_marks.mark_stale("deployment", [factories.station().pk for _ in range(4)])
    rounds = 0
    while not stale_flush.flush(Turn(2)):
        rounds += 1
        assert rounds < 10
    assert rounds > 0
    assert not StaleCount.objects.exists()


def test_mark_of_a_deleted_object_is_removed():
    stale_marks.mark_stale("event", [12345])
    stale_marks.mark_stale("sessions", [12345])
    flush()


def test_identification_beats_classifications_until_withdrawn(station):
    found, named = station.occurrences.first(), factories.taxon("Named by a person")
    machine = found.determination
    said = Identification.objects.create(occurrence=found, user=factories.user(), taxon=named)
    found.refresh_from_db()
    assert (found.determination, found.determination_score) == (named, 1.0)
    said.withdrawn = True
    said.save()
    found.refresh_from_db()
    assert (found.determination, found.determination_score) == (machine, 0.9)
    Identification.objects.all().delete()
    assert StaleCount.objects.filter(kind="event", object_pk=found.event_id).exists()
