"""Times that people read have one form, with seconds and zone."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone

from ami.celery.shown_time import shown_time
from tests.support.checkout import ROOT

AT = datetime(2026, 11, 28, 12, 3, 4, 999_999, tzinfo=UTC)


@pytest.mark.parametrize("at", [AT, AT.timestamp(), AT.isoformat(), "2026-11-28T13:03:04+01:00"])
def test_time_has_seconds_and_zone(at: Any):
    assert shown_time(at) == "2026-11-28 12:03:04 UTC"


@pytest.mark.parametrize(
    ("zone", "utc", "shown"),
    [
        ("Europe/Berlin", datetime(2026, 7, 1, tzinfo=UTC), "2026-07-01 02:00:00 CEST"),
        ("Europe/Berlin", datetime(2026, 10, 25, 0, 30, tzinfo=UTC), "2026-10-25 02:30:00 CEST"),
        ("Europe/Berlin", datetime(2026, 10, 25, 1, 30, tzinfo=UTC), "2026-10-25 02:30:00 CET"),
        ("America/Panama", AT, "2026-11-28 07:03:04 EST"),
        ("Asia/Kathmandu", AT, "2026-11-28 17:48:04 +0545"),
    ],
)
def test_hour_that_a_clock_change_repeats_is_told_apart(zone: str, utc: datetime, shown: str, settings: Any):
    settings.TIME_ZONE = zone
    assert shown_time(utc) == shown
    with timezone.override("UTC"):
        assert shown_time(utc).endswith(" UTC")


def test_no_other_form_is_written():
    """A time of day in a format of its own, in what people read; JSON has ISO 8601, and SQL its own."""
    own = {"ami/celery/shown_time.py", "ami/celery/database_times.py"}
    own |= {"ami/queues/worker_rows.py", "ami/transports/objectstore/check/delayed.py"}
    files = [file for file in (ROOT / "ami").rglob("*") if file.suffix in (".py", ".html", ".js")]
    other = re.compile(r"%H:%M|timeStyle|dateStyle|\|date:|toLocale\w*String")
    found = {
        str(file.relative_to(ROOT)) for file in files if "vendor" not in file.parts and other.search(file.read_text())
    }
    assert found - own == {"ami/console/static/console/charts.js"}  # The axis of a chart.
