"""Conversion between the local time of stations and UTC."""

from datetime import UTC, date, datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError

#: Cameras without a set clock begin in 2000 to 2009.
FIRST_LIKELY_YEAR = 2010


class HasTimeZone(Protocol):
    """An object with the IANA name of its time zone, such as a `Deployment`."""

    time_zone: str


def station_time(moment: datetime, deployment: HasTimeZone) -> datetime:
    """Return ``moment`` as an aware UTC time; a naive time is the station's local time.

    In an hour that a clock change repeats, the first occurrence is used (``fold=0``). In an hour that it skips, the
    offset before the change is used: 02:30 on a night without a 02:30 is 03:30 by the changed clock.
    """
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(deployment.time_zone), fold=0)
    return moment.astimezone(UTC)


def local_date(moment: datetime, deployment: HasTimeZone) -> date:
    """Return the station's local date at the aware time ``moment``."""
    return moment.astimezone(ZoneInfo(deployment.time_zone)).date()


def doubt_of(moment: datetime, now: datetime) -> str:
    """Return why an aware time is probably a camera's wrong clock; empty if it is not."""
    if moment.year < FIRST_LIKELY_YEAR:
        return f"before {FIRST_LIKELY_YEAR}"
    return "in the future" if moment > now else ""


def validate_time_zone(name: str) -> None:
    """Check an IANA time zone name.

    Raises:
        ValidationError: the name is unknown to this machine.
    """
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValidationError(f"'{name}' is not a time zone; use an IANA name such as 'America/New_York'.") from error
