"""Station time: what a clock without a zone showed, as an instant."""

from datetime import UTC, date, datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError


class HasTimeZone(Protocol):
    """Whatever knows the IANA name of its time zone, such as a `Deployment`."""

    time_zone: str


def station_time(moment: datetime, deployment: HasTimeZone) -> datetime:
    """Return ``moment`` as an aware UTC time; without a zone it is read as the station's local time.

    Where a clock change doubles an hour the first of the two is meant (``fold=0``). Where it skips an hour, the
    time is read with the offset before the change, which shifts it forward by what was skipped: 02:30 on a night
    without a 02:30 is the instant that the changed clock calls 03:30.
    """
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(deployment.time_zone), fold=0)
    return moment.astimezone(UTC)


def local_date(moment: datetime, deployment: HasTimeZone) -> date:
    """Return the calendar date that the station's clock showed at the aware time ``moment``."""
    return moment.astimezone(ZoneInfo(deployment.time_zone)).date()


def validate_time_zone(name: str) -> None:
    """Refuse a name that is not an IANA time zone known to this machine.

    Raises:
        ValidationError: naming the value and an example that works.
    """
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValidationError(f"'{name}' is no time zone; use an IANA name such as 'America/New_York'.") from error
