"""Capture sets and their selection methods."""

from datetime import timedelta

import pytest

from ami.main.models import SourceImageCollection
from ami.main.services.capture_sets import OptionError, populate, validate_options
from tests.support.product import factories
from tests.support.product.factories import NIGHT, Turn

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]


def collection(station, method="full", **options):
    return SourceImageCollection.objects.create(name="Set", project=station.project, method=method, kwargs=options)


def filled(station, method="full", **options):
    chosen = collection(station, method, **options)
    assert populate(chosen, Turn())
    return list(chosen.images.order_by("timestamp"))


def test_full_takes_every_capture_of_its_project_only():
    station = factories.station()
    mine = factories.captures(station, 3)
    factories.captures(factories.station(), 2)
    assert filled(station) == mine


def test_random_draws_the_same_ones_each_time():
    station = factories.station()
    factories.captures(station, 20)
    drawn = collection(station, "random", size=5)
    assert populate(drawn, Turn())
    first = set(drawn.images.all())
    assert len(first) == 5
    assert populate(drawn, Turn())
    assert set(drawn.images.all()) == first


def test_interval_takes_captures_far_enough_apart():
    station = factories.station()
    factories.captures(station, 7, every_minutes=10)
    taken = [capture.timestamp for capture in filled(station, "interval", minute_interval=30)]
    assert taken == [NIGHT + timedelta(minutes=minutes) for minutes in (0, 30, 60)]


def test_nth_counts_each_station_alone():
    project = factories.project()
    stations = [factories.station(project) for _ in "ab"]
    firsts = [factories.captures(station, 4)[::3] for station in stations]
    assert set(filled(stations[0], "nth", nth=3)) == {capture for pair in firsts for capture in pair}


def test_manual_takes_no_capture_of_another_project():
    station = factories.station()
    mine, other = factories.capture(station), factories.capture(factories.station())
    assert filled(station, "manual", image_ids=[mine.pk, other.pk]) == [mine]


def test_an_empty_list_of_captures_means_none_hazard_5():
    station = factories.station()
    factories.captures(station, 2)
    assert filled(station, "manual", image_ids=[]) == []


def test_filters_narrow_every_method():
    project = factories.project()
    stations = [factories.station(project) for _ in "ab"]
    mine = [factories.captures(station, 2) for station in stations][0]
    assert filled(stations[0], "full", deployment_ids=[stations[0].pk], date_end="2026-06-01") == mine


def test_slices_have_the_same_result_as_one_run(monkeypatch):
    monkeypatch.setattr("ami.main.services.capture_sets.STEP", 2)
    station = factories.station()
    captures = factories.captures(station, 7)
    chosen = collection(station)
    turns = 0
    while not populate(chosen, Turn(1)):
        turns += 1
        assert turns < 10
    assert turns > 1
    assert set(chosen.images.all()) == set(captures)


def test_surplus_captures_are_removed():
    station = factories.station()
    captures = factories.captures(station, 4)
    chosen = collection(station)
    populate(chosen, Turn())
    chosen.method, chosen.kwargs = "manual", {"image_ids": [captures[0].pk]}
    chosen.save()
    assert populate(chosen, Turn())
    assert list(chosen.images.all()) == captures[:1]


@pytest.mark.parametrize(
    ("method", "options", "named"),
    [
        ("random", {}, "size"),
        ("random", {"size": 0}, "size"),
        ("random", {"size": True}, "size"),
        ("random", {"size": "5"}, "size"),
        ("full", {"nth": 3}, "nth"),
        ("manual", {"image_ids": ["1"]}, "image_ids"),
        ("full", {"date_start": "yesterday"}, "date_start"),
        ("interval", {"minute_interval": -1}, "minute_interval"),
    ],
)
def test_invalid_options_are_refused_by_name(method, options, named):
    with pytest.raises(OptionError) as refusal:
        validate_options(method, options)
    assert refusal.value.option == named
