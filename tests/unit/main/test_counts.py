"""Calculated fields and their marks."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ami.admission.models import Call
from ami.main.models import Deployment, Event, Identification
from ami.main.services import counts, recounts, sessions, stale_marks
from tests.support.product import factories
from tests.support.product.factories import Turn
from tests.support.product.stale import forget, marked, recount_marked

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


@pytest.fixture
def station():
    station = factories.station()
    for capture in factories.captures(station, 3):
        factories.occurrence(capture, factories.taxon(), 0.9)
        factories.null_marker(capture)
    assert sessions.regroup(station.pk, Turn()) is sessions.Outcome.DONE
    return station


def test_counts_leave_null_markers_out(station):
    recount_marked()
    event, station = Event.objects.get(), Deployment.objects.get()
    assert (event.captures_count, event.detections_count, event.occurrences_count) == (3, 3, 3)
    assert (event.start, event.end) == (factories.NIGHT, station.last_capture_timestamp)
    assert (station.captures_count, station.detections_count, station.occurrences_count) == (3, 3, 3)
    assert (station.events_count, station.taxa_count, station.data_source_total_size) == (1, 3, 30)
    assert set(station.captures.values_list("detections_count", flat=True)) == {1}


def test_a_changed_threshold_recounts_the_whole_project(station):
    recount_marked()
    station.project.default_filters_score_threshold = 0.95
    station.project.save()
    recount_marked()
    assert Event.objects.get().detections_count == 0
    assert Deployment.objects.get().occurrences_count == 0
    assert set(station.captures.values_list("detections_count", flat=True)) == {0}


def test_excluded_taxa_leave_the_counts_with_their_descendants(station):
    recount_marked()
    family = factories.taxon("Family")
    found = station.occurrences.first()
    found.determination.parent = family
    found.determination.save()
    station.project.default_filters_exclude_taxa.add(family)
    recount_marked()
    assert Event.objects.get().occurrences_count == 2
    family.projects_that_exclude_it.clear()
    station.project.default_filters_include_taxa.add(family)
    recount_marked()
    assert Event.objects.get().occurrences_count == 1


def test_unclassified_occurrence_counts():
    station = factories.station()
    factories.occurrence(factories.capture(station))
    counts.refresh("deployment", station.pk)
    station.refresh_from_db()
    assert (station.detections_count, station.occurrences_count, station.taxa_count) == (1, 1, 0)


def test_no_keys_mean_nothing_and_never_everything_hazard_5(station):
    forget()
    for kind in stale_marks.KINDS:
        stale_marks.mark_stale(kind, [])
        stale_marks.mark_stale(kind, [None])
    stale_marks.mark_stale_counts(events=[None], deployments=[])
    assert not marked()


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="choose one of"):
        stale_marks.mark_stale("evnt", [1])


def test_many_marks_are_one_refresh(station):
    forget()
    with CaptureQueriesContext(connection) as queries:
        recounts.recount("deployment", [station.pk] * 50, Turn())
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


def test_objects_that_fail_are_tried_last_and_alone(station, monkeypatch, caplog):
    other = factories.station()
    refresh = counts.refresh

    def refuse_one(kind, pk):
        if pk == station.pk:
            raise RuntimeError("cannot be counted")
        refresh(kind, pk)

    monkeypatch.setattr(recounts, "refresh", refuse_one)
    assert recounts.recount("deployment", [station.pk, other.pk], Turn()) == [station.pk]
    assert "cannot be counted" in caplog.text
    with pytest.raises(recounts.NotCounted, match=f"such as {station.pk}"):
        recounts.recount("deployment", [station.pk], Turn())


def test_next_slice_counts_the_remaining_objects():
    left = [factories.station().pk for _ in range(4)]
    rounds = []
    while left := recounts.recount("deployment", left, Turn(1)):
        rounds.append(len(left))
    assert rounds == [3, 2, 1]


def test_project_is_recounted_in_slices(station):
    other = factories.station(station.project)
    forget()
    places, after = [], (0, 0)
    while after := recounts.recount_project(station.project_id, Turn(1), after):
        places.append(after)
    event = Event.objects.get()
    assert places == [(0, event.pk), (1, station.pk), (1, other.pk)]
    assert (event.captures_count, Deployment.objects.get(pk=station.pk).captures_count) == (3, 3)
    assert not marked()


def test_object_that_was_deleted_is_skipped():
    for kind in ("event", "deployment", "project"):
        assert recounts.recount(kind, [12345], Turn()) == []


def test_thousands_of_keys_are_a_few_calls(station, monkeypatch):
    forget()
    monkeypatch.setattr(stale_marks, "MOST_KEYS", 2)
    stale_marks.mark_stale_counts(events=[1, 2, 3, 3, None], deployments=[4])
    assert marked() == {("event", 1), ("event", 2), ("event", 3), ("deployment", 4)}
    assert Call.objects.count() == 3


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
    assert ("event", found.event_id) in marked()
