"""Lets a crontab of every hour go on through the hour that the end of summer time repeats."""

from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from celery.schedules import crontab


def in_real_time(schedule: Any) -> Any:
    """Return the schedule. A crontab with the hour ``*`` is due whenever the clock shows its minute, also twice.

    Celery looks for a later time on the clock, so that ``*/15`` would be silent for 75 minutes. A crontab that names
    hours runs in the first of two only.
    """
    if isinstance(schedule, crontab) and len(schedule.hour) == 24:
        schedule.remaining_estimate = partial(_remaining, schedule)
    return schedule


def _remaining(schedule: Any, last_run_at: datetime) -> timedelta:
    """Return the time to the next run; see ``celery.schedules.crontab.remaining_estimate``."""
    last = schedule.maybe_make_aware(last_run_at).astimezone(schedule.tz)
    due = _next(schedule, last, last.utcoffset())
    if (offset := due.astimezone(schedule.tz).utcoffset()) != last.utcoffset():
        due = _next(schedule, last, offset)
        while due.astimezone(schedule.tz).utcoffset() != offset:  # Before the change: the clock does not show it.
            due = _next(schedule, due, offset)
    remaining: timedelta = due - schedule.maybe_make_aware(schedule.now())
    return remaining


def _next(schedule: Any, last: datetime, offset: Any) -> datetime:
    """Return the next run as if this offset to UTC held for ever."""
    start, delta, _ = schedule.remaining_delta(last, tz=timezone(offset))
    due: datetime = start + delta
    return due
