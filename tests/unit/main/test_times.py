"""Station time, and times in file names."""

# The tests are about naive times.
# ruff: noqa: DTZ001

from datetime import UTC, date, datetime
from types import SimpleNamespace

import pytest
from django.core.exceptions import ValidationError

from ami.main.services.file_times import time_in_name
from ami.main.services.times import local_date, station_time, validate_time_zone

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
    ("name", "expected"),
    [
        ("141-20220916221959-snapshot.jpg", datetime(2022, 9, 16, 22, 19, 59)),
        ("20220810232637-00-16.jpg", datetime(2022, 8, 10, 23, 26, 37)),
        ("a/b/2026-06-01_23-15-00.jpg", datetime(2026, 6, 1, 23, 15)),
        ("20260601T231500Z.jpg", datetime(2026, 6, 1, 23, 15)),
        ("20261301000000_20260601231500.jpg", datetime(2026, 6, 1, 23, 15)),
        ("moth.jpg", None),
        ("20260231250000.jpg", None),
        ("20260601231500/moth.jpg", None),
        ("120260601231500.jpg", None),
    ],
)
def test_the_time_is_read_from_the_file_name(name, expected):
    assert time_in_name(name) == expected
