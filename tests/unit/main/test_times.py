"""Station time."""

# The tests are about naive times.
# ruff: noqa: DTZ001

from datetime import UTC, date, datetime
from types import SimpleNamespace

import pytest
from django.core.exceptions import ValidationError

from ami.main.services.times import doubt_of, local_date, station_time, validate_time_zone

BERLIN = SimpleNamespace(time_zone="Europe/Berlin")


def test_a_time_without_a_zone_is_the_stations_local_time():
    assert station_time(datetime(2026, 7, 1, 22, 0), BERLIN) == datetime(2026, 7, 1, 20, 0, tzinfo=UTC)


def test_a_time_with_a_zone_keeps_its_instant():
    moment = datetime(2026, 7, 1, 22, 0, tzinfo=UTC)
    assert station_time(moment, BERLIN) == moment


def test_the_doubled_hour_means_the_first_of_the_two():
    # On 2026-10-25 clocks in Berlin are set back from 03:00 summer time to 02:00.
    assert station_time(datetime(2026, 10, 25, 2, 30), BERLIN) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def test_the_doubled_hour_means_the_first_even_where_the_time_says_fold():
    assert station_time(datetime(2026, 10, 25, 2, 30, fold=1), BERLIN) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def test_the_skipped_hour_is_shifted_forward():
    # On 2026-03-29 clocks in Berlin are set from 02:00 to 03:00: 02:30 does not exist and means 03:30 summer time.
    meant = station_time(datetime(2026, 3, 29, 2, 30), BERLIN)
    assert meant == datetime(2026, 3, 29, 1, 30, tzinfo=UTC) == station_time(datetime(2026, 3, 29, 3, 30), BERLIN)


def test_the_local_date_is_the_stations():
    assert local_date(datetime(2026, 7, 1, 22, 30, tzinfo=UTC), BERLIN) == date(2026, 7, 2)


def test_an_unknown_time_zone_is_refused_with_an_example():
    with pytest.raises(ValidationError, match="America/New_York"):
        validate_time_zone("Mars/Olympus")


@pytest.mark.parametrize(
    ("year", "doubt"), [(2009, "before 2010"), (2010, ""), (2026, ""), (2027, "in the future"), (2099, "in the future")]
)
def test_time_before_2010_or_in_the_future_is_doubted(year, doubt):
    assert doubt_of(datetime(year, 6, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)) == doubt
