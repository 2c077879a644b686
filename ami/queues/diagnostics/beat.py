"""Findings about beat, from the database: none runs, two run, ticks are late."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from celery.schedules import ParseException
from django.core.exceptions import ImproperlyConfigured
from django.db import Error
from django.db.models.functions import Now
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from ami.celery.beat_entry import latest_run
from ami.queues.diagnostics.finding import Finding
from ami.queues.models import Beat, TickClaim
from ami.queues.waiting_ticks import why_withheld

#: A beat shows itself every ten seconds; one that missed three times is not counted as running.
RUNNING = timedelta(seconds=30)
#: A publish that the broker does not confirm keeps a running beat from ticking for up to half a minute.
SILENT = timedelta(seconds=60)
LATE = timedelta(seconds=60)
#: The most entries that one finding names.
NAMED = 5
START = "Start celerybeat. A beat of an earlier version is not seen: if one runs, do not start a second."


def findings() -> list[Finding]:
    """Return what is wrong with beat and its ticks; a deployment without enabled entries needs no beat."""
    try:
        return list(_findings())
    except Error as error:
        return [Finding("unseen", "no-beat", f"Beat not checked: the database did not answer. {error}".strip())]


def _findings() -> Iterator[Finding]:
    beats = {beat.name: beat.now - beat.seen_at for beat in Beat.objects.annotate(now=Now()).order_by("name")}
    running = [name for name, age in beats.items() if age < RUNNING]
    if len(running) > 1:
        yield Finding(
            "warning",
            "two-beats",
            f"{len(running)} beats run: {', '.join(running)} (host:pid). Each tick is sent once all the same; stop all "
            "but one.",
        )
    enabled = list(PeriodicTask.objects.enabled())
    if not enabled:
        return
    if not any(age < SILENT for age in beats.values()):
        yield Finding("error", "no-beat", f"{_last(beats)}; enabled entries: {len(enabled)}. {START}")
        return
    yield from _late(enabled)


def _last(beats: dict[str, timedelta]) -> str:
    if not beats:
        return "No beat runs"
    name = min(beats, key=lambda each: beats[each])
    return f"No beat has ticked for {beats[name].total_seconds():.0f} s (the last was {name})"


def _late(enabled: list[PeriodicTask]) -> Iterator[Finding]:
    claims = {claim.pk: claim for claim in TickClaim.objects.all()}
    overdue = {entry.name: _overdue(entry, claims.get(entry.pk), timezone.now()) for entry in enabled}
    waiting = {entry.name: why_withheld(entry.pk) for entry in enabled if overdue[entry.name] > LATE}
    for name, why in sorted((name, why) for name, why in waiting.items() if why):
        yield Finding("warning", "withheld-tick", f"Ticks of {name} are withheld: {why}.")
        overdue[name] = timedelta()
    late = sorted((name for name, by in overdue.items() if by > LATE), key=lambda name: -overdue[name])
    if late:
        named = ", ".join(f"{name} by {overdue[name].total_seconds():.0f} s" for name in late[:NAMED])
        more = f" and {len(late) - NAMED} more" if len(late) > NAMED else ""
        sentence = f"Ticks are late: {named}{more}. Look at beat's log; 'Message Error' there is the broker."
        yield Finding("warning", "late-tick", sentence)


def _overdue(entry: PeriodicTask, claim: TickClaim | None, now: datetime) -> timedelta:
    """Return how long ago the entry should have been sent; zero or less: it is not due."""
    if claim and claim.claimed_at and not claim.is_sent:
        return now - claim.claimed_at
    # As beat does (`ami.celery.beat_entry`): an entry without a last run was enabled since its last claim.
    claimed = claim if claim and claim.claimed_at and entry.last_run_at else None
    runs = max(claimed.runs, entry.total_run_count) if claimed else entry.total_run_count
    if (entry.one_off and runs) or (entry.expires and now >= entry.expires):
        return timedelta()
    last_run_at = entry.last_run_at or entry.date_changed
    if claimed and claimed.claimed_at:
        last_run_at = latest_run(claimed.claimed_at, last_run_at, now)
    try:
        overdue: timedelta = -entry.schedule.remaining_estimate(last_run_at)
    except (AttributeError, ImproperlyConfigured, ParseException, ValueError):
        return timedelta()  # It has no schedule, or one that beat cannot read: the log of beat names it.
    return min(overdue, now - entry.start_time) if entry.start_time else overdue
