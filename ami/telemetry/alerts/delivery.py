"""Sends a receiver what it has not got: of one alert in order, at the next look again where it fails."""

import time
from datetime import datetime
from typing import Any

from celery.utils.log import get_logger
from django.db import transaction
from django.db.models.functions import Now

from ami.celery.thread_database import database_block
from ami.queues import named_leases
from ami.queues.models import Lease
from ami.telemetry.alerts import notices, receivers
from ami.telemetry.alerts.policy import Event, Key
from ami.telemetry.models import Alert

logger = get_logger(__name__)

LEASE = "sampler"
#: Of one look, to one receiver: the next look waits for it.
SECONDS = 20.0
#: Of a receiver at once.
MOST_READ = 200


def held_at(holder: str) -> datetime | None:
    """Return the database's time, None where another process has the lease."""
    rows: Any = Lease.objects.filter(name=LEASE, holder=holder, until__gt=Now()).annotate(now=Now())
    at: datetime | None = rows.values_list("now", flat=True).first()
    return at


def send(holder: str, name: str) -> None:
    """Send a receiver all that waits for it, until it fails; those of alerts that failed least come first."""
    until = time.monotonic() + SECONDS
    with database_block():
        rows = list(Alert.objects.filter(waiting__has_key=name).order_by("pk")[:MOST_READ])
    tries: dict[Key, int] = {}
    for row in rows:
        tries[row.key] = max(tries.get(row.key, 0), row.waiting[name].get("tries", 0))
    for row in sorted(rows, key=lambda row: (tries[row.key], row.pk)):
        while name in row.waiting:
            if time.monotonic() > until or not _send(holder, name, row):
                return


def _send(holder: str, name: str, row: Alert) -> bool:
    """Send the first notice of an alert; return False where the receiver fails or another process has the lease."""
    event, why = Event(row.waiting[name]["events"][0]), ""
    with database_block():
        now = held_at(holder)
    if now is None:
        return False
    try:
        receivers.send(name, notices.body(row, event))
    except receivers.NotSent as error:
        why = str(error)
        logger.warning("Alert not sent by %s: %s", name, why)
    with database_block():
        return _note(holder, name, row, event, now, why) and not why


@transaction.atomic
def _note(holder: str, name: str, row: Alert, event: Event, now: datetime, why: str) -> bool:
    """Write down that a receiver got a notice, or ``why`` not; return False where another process may have sent it."""
    if not named_leases.hold(LEASE, holder):
        return False
    row.refresh_from_db(fields=["waiting"])
    entry: dict[str, Any] | None = row.waiting.get(name)
    if entry is None or entry["events"][0] != event:
        return False
    if why:
        since = entry.get("since", now.isoformat(sep=" ", timespec="seconds"))
        entry |= {"since": since, "tries": entry.get("tries", 0) + 1, "why": why[:255]}
    elif len(entry["events"]) > 1:
        row.waiting[name] = {"events": entry["events"][1:]}
    else:
        del row.waiting[name]
    row.save(update_fields=["waiting"])
    return True
