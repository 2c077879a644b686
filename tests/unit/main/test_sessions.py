"""Grouping of captures into events."""

from datetime import UTC, date, datetime, timedelta

import pytest

from ami.main import tasks
from ami.main.models import Deployment, Event
from ami.main.services import sessions
from ami.main.services.sessions import Outcome
from ami.queues import named_leases
from ami.queues.models import Lease
from tests.support.product import factories
from tests.support.product.factories import NIGHT, Turn
from tests.support.product.stale import marked, recount_marked

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def group(station, turn=None):
    return sessions.regroup(station.pk, turn or Turn())


def days(station):
    return list(Event.objects.filter(deployment=station).order_by("group_by").values_list("group_by", flat=True))


def test_gap_starts_another_session():
    station = factories.station()
    for hours in (0, 1, 2, 24, 25):
        factories.capture(station, NIGHT + timedelta(hours=hours))
    assert group(station) is Outcome.DONE
    assert days(station) == [date(2026, 6, 1), date(2026, 6, 2)]
    assert sorted(event.captures.count() for event in station.events.all()) == [2, 3]


def test_a_night_is_named_by_the_date_on_the_stations_clock():
    station = factories.station(time_zone="America/New_York")
    factories.capture(station, datetime(2026, 6, 2, 2, 0, tzinfo=UTC))
    group(station)
    assert days(station) == [date(2026, 6, 1)]


@pytest.mark.parametrize("change", [datetime(2026, 3, 29, 0, 0, tzinfo=UTC), datetime(2026, 10, 25, 0, 0, tzinfo=UTC)])
def test_a_clock_change_splits_no_session(change):
    station = factories.station(time_zone="Europe/Berlin")
    for minutes in range(-180, 180, 30):
        factories.capture(station, change + timedelta(minutes=minutes))
    group(station)
    assert len(days(station)) == 1


def test_grouping_twice_changes_nothing():
    station = factories.station()
    factories.captures(station, 5)
    group(station)
    before = list(station.captures.values_list("pk", "event_id"))
    group(station)
    assert list(station.captures.values_list("pk", "event_id")) == before


def test_slices_have_the_same_result_as_one_run(monkeypatch):
    monkeypatch.setattr(sessions, "STEP_CAPTURES", 2)
    station = factories.station()
    for hours in (0, 1, 2, 24, 25, 26, 48):
        factories.capture(station, NIGHT + timedelta(hours=hours))
    outcomes = [group(station, Turn(1))]
    while outcomes[-1] is Outcome.MORE:
        outcomes.append(sessions.regroup(station.pk, Turn(1), begins=False))
    assert outcomes[-1] is Outcome.DONE
    assert len(outcomes) > 2
    assert [event.captures.count() for event in station.events.order_by("group_by")] == [3, 3, 1]


def test_occurrences_follow_their_captures_and_empty_events_go():
    station = factories.station()
    capture = factories.capture(station)
    wrong = Event.objects.create(project=station.project, deployment=station, group_by="2020-01-01")
    capture.event = wrong
    capture.save()
    found = factories.occurrence(capture)
    group(station)
    found.refresh_from_db()
    assert found.event.group_by == date(2026, 6, 1)
    assert not Event.objects.filter(pk=wrong.pk).exists()


def test_an_occurrence_saved_while_its_capture_moved_follows_too():
    station = factories.station()
    found = factories.occurrence(factories.capture(station))
    group(station)
    type(found).objects.update(event=None)
    group(station)
    found.refresh_from_db()
    assert found.event_id is not None


def test_captures_without_a_time_belong_to_no_event():
    station = factories.station()
    factories.capture(station, None)
    group(station)
    assert days(station) == []


def test_station_is_grouped_later_while_its_lease_is_held_incident_46():
    station = factories.station()
    factories.captures(station, 2)
    assert named_leases.take(f"regroup:{station.pk}", "another worker", 60)
    assert tasks.regroup_events.apply(kwargs={"deployment_id": station.pk}).result == Outcome.HELD.value
    assert days(station) == []
    named_leases.release(f"regroup:{station.pk}", "another worker")
    assert marked() == {("sessions", station.pk)}
    recount_marked()
    assert days(station) == [date(2026, 6, 1)]


def test_call_that_begins_starts_over_behind_the_place_of_another_incident_46(monkeypatch):
    monkeypatch.setattr(sessions, "STEP_CAPTURES", 1)
    station = factories.station()
    for hours in (0, 1, 2):
        factories.capture(station, NIGHT + timedelta(hours=hours))
    assert group(station, Turn(2)) is Outcome.MORE
    late = factories.capture(station, NIGHT - timedelta(days=3))
    assert group(station, Turn(2)) is Outcome.MORE
    while sessions.regroup(station.pk, Turn(2), begins=False) is Outcome.MORE:
        pass
    late.refresh_from_db()
    assert late.event is not None
    assert days(station) == [date(2026, 5, 29), date(2026, 6, 1)]


def test_lost_lease_rolls_the_step_back_incident_46():
    station = factories.station()
    factories.captures(station, 2)
    Lease.objects.create(name=f"regroup:{station.pk}", holder="dead worker", until=NIGHT - timedelta(days=999))
    assert named_leases.take(f"regroup:{station.pk}", "me", 60)
    Lease.objects.update(holder="another worker")
    with pytest.raises(sessions.LeaseLost):
        sessions._fenced_step(station, sessions.BEGINNING, f"regroup:{station.pk}", "me")
    assert days(station) == []


@pytest.mark.parametrize("changed", ["time_zone", "gap"])
def test_another_zone_or_gap_marks_the_sessions(changed):
    station = factories.station()
    if changed == "time_zone":
        station.time_zone = "Asia/Tokyo"
        station.save()
    else:
        station.project.session_time_gap_seconds = 60
        station.project.save()
    assert marked() == {("sessions", station.pk)}


def test_nothing_is_left_of_a_deleted_station():
    station = factories.station()
    Deployment.objects.all().delete()
    assert sessions.regroup(station.pk, Turn()) is Outcome.DONE
