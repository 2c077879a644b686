"""Findings about beat, from the database: none runs, ticks are late."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models.functions import Now
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from ami.celery.thread_database import database_block
from ami.queues import start_commands
from ami.queues.diagnostics.finding import Finding
from ami.queues.due import due_at
from ami.queues.models import Beat, TickClaim
from ami.queues.waiting_ticks import withheld

#: A publish that the broker does not confirm keeps a running beat from ticking for up to half a minute.
SILENT = timedelta(seconds=60)
LATE = timedelta(seconds=60)
#: The most entries that one finding names.
NAMED = 5


def findings() -> list[Finding]:
    """Return what is wrong with beat and its ticks; a deployment without enabled entries needs no beat.

    Raises:
        django.db.Error: the database did not answer.
    """
    with database_block():
        return list(_findings())


def _findings() -> Iterator[Finding]:
    beats = {beat.name: beat.now - beat.seen_at for beat in Beat.objects.annotate(now=Now()).order_by("name")}
    enabled = list(PeriodicTask.objects.enabled().select_related("interval", "crontab", "solar", "clocked"))
    if not enabled:
        return
    if not any(age < SILENT for age in beats.values()):
        start = f"Start it: '{start_commands.of_beat()}'."
        yield Finding("error", "no-beat", f"{_last(beats)}; enabled entries: {len(enabled)}. {start}")
        return
    yield from _late(enabled)


def _last(beats: dict[str, timedelta]) -> str:
    if not beats:
        return "No beat runs"
    name = min(beats, key=lambda each: beats[each])
    return f"No beat has ticked for {beats[name].total_seconds():.0f} s (the last was {name})"


def _late(enabled: list[PeriodicTask]) -> Iterator[Finding]:
    claims = {claim.pk: claim for claim in TickClaim.objects.select_related("entry")}
    overdue = {entry.name: _overdue(entry, claims.get(entry.pk), timezone.now()) for entry in enabled}
    late_entries = {entry.pk: entry.name for entry in enabled if overdue[entry.name] > LATE}
    waiting = withheld(claims[key] for key in late_entries if key in claims)
    for name, why in sorted((late_entries[key], why) for key, why in waiting.items()):
        yield Finding("warning", "withheld-tick", f"Ticks of {name} are withheld: {why}.", name)
        overdue[name] = timedelta()
    late = sorted((name for name, by in overdue.items() if by > LATE), key=lambda name: -overdue[name])
    if late:
        named = ", ".join(f"{name} by {overdue[name].total_seconds():.0f} s" for name in late[:NAMED])
        more = f" and {len(late) - NAMED} more" if len(late) > NAMED else ""
        sentence = f"Ticks are late: {named}{more}. Look at beat's log; 'Message Error' there is the broker."
        yield Finding("warning", "late-tick", sentence)


def _overdue(entry: PeriodicTask, claim: TickClaim | None, now: datetime) -> timedelta:
    """Return how long ago the entry should have been sent; zero or less: it is not due."""
    due = due_at(entry, claim, now)
    return now - due if due else timedelta()
