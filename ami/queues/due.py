"""When an entry of beat's schedule is due, as beat itself counts."""

from datetime import datetime, timedelta

from celery.schedules import ParseException
from django.core.exceptions import ImproperlyConfigured
from django_celery_beat.models import PeriodicTask

from ami.celery.hourly_crontab import in_real_time
from ami.queues.models import TickClaim


def whole_second(due: datetime | None) -> datetime | None:
    """Return a due time rounded up to the second: with its fraction cut off it would be shown as earlier than it is."""
    return due + timedelta(microseconds=-due.microsecond % 1_000_000) if due else None


def due_at(entry: PeriodicTask, claim: TickClaim | None, now: datetime) -> datetime | None:
    """Return when the next tick of an entry is, or was, due; None if there is none, or beat cannot read its schedule.

    No statement where the entry's schedule was selected with it. A tick that was claimed and not sent was due when it
    was claimed.
    """
    if claim and claim.claimed_at and not claim.is_sent:
        return claim.claimed_at
    # As beat does (`ami.celery.beat_entry`): an entry without a last run was enabled since its last claim.
    claimed = claim if claim and claim.claimed_at and entry.last_run_at else None
    runs = claimed.runs if claimed else entry.total_run_count
    if (entry.one_off and runs) or (entry.expires and now >= entry.expires):
        return None
    last_run_at = claimed.claimed_at if claimed else entry.last_run_at or entry.date_changed
    try:
        schedule = in_real_time(entry.schedule)
        schedule.nowfun = lambda: now
        due: datetime = now + schedule.remaining_estimate(last_run_at)
    except (AttributeError, ImproperlyConfigured, ParseException, ValueError):
        return None  # It has no schedule, or one that beat cannot read: the log of beat names it.
    return max(due, entry.start_time) if entry.start_time else due
