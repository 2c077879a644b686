"""Looks for what is wrong each minute while this process holds the sampler's lease, and sends what lasts.

A look asks every worker and takes seconds: it runs in a thread of its own, so that samples are taken meanwhile.
"""

import threading
import time
from typing import TYPE_CHECKING

from celery.utils.log import get_logger
from django.conf import settings
from django.db import Error, connections, transaction
from django.db.models import Q

from ami.celery import outages, storable
from ami.celery.thread_database import beside_forks, database_block
from ami.environment.deferred import deferred
from ami.queues import named_leases
from ami.telemetry.alerts import options, policy, rules
from ami.telemetry.alerts.policy import Event
from ami.telemetry.models import Alert
from ami.telemetry.snapshots.shape import FindingFigures

if TYPE_CHECKING:
    from ami.telemetry import findings
    from ami.telemetry.alerts import delivery
else:  # Few processes ever look.
    findings, delivery = deferred("ami.telemetry.findings"), deferred("ami.telemetry.alerts.delivery")

logger = get_logger(__name__)


class Evaluator:
    """One per process, turned by the sampler's thread."""

    def __init__(self) -> None:
        self._next = 0.0
        self._thread: threading.Thread | None = None

    def turn(self, holder: str) -> None:
        """Begin a look if it is time and the one before has ended; called every second by who holds the lease."""
        now = time.monotonic()
        if now < self._next or not options.receivers() or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = now + settings.ANTENNA_ALERT_INTERVAL_SECONDS
        self._thread = threading.Thread(target=_run, args=(holder,), name="alerts", daemon=True)
        self._thread.start()


def _run(holder: str) -> None:
    try:
        with beside_forks():
            look(holder)
    except Error as error:
        outages.complain("Alerts not evaluated", error)
    except Exception:
        logger.exception("Alerts not evaluated; trying again")
    finally:
        connections.close_all()  # This thread's.


def look(holder: str) -> None:
    """Look once, write what it changes, and send to each receiver what it has not got.

    Raises:
        django.db.Error: the database did not answer.
    """
    with database_block():
        now = delivery.held_at(holder)
    if now is None:
        return
    found = [
        FindingFigures(each.level, each.name, storable.text(each.sentence, None), storable.text(each.target))
        for each in findings.for_alerts(settings.ANTENNA_ALERT_INTERVAL_SECONDS)
    ]
    hidden = rules.hidden((each.name, each.level, each.target) for each in found)
    lasting = policy.seen(found, collects_letters=settings.ANTENNA_COLLECT_LETTERS)
    with database_block():
        old = Q(resolved_at__lt=now - options.KEPT)
        rows = list(Alert.objects.filter(Q(resolved_at=None) | ~Q(waiting={}) | old))
        if any(row.resolved_at and row.resolved_at < now - options.KEPT for row in rows):
            Alert.objects.filter(old).delete()
        alerts = {row.key: row for row in rows if row.resolved_at is None}
        changes = list(policy.changes(alerts, lasting, hidden, now, options.patience()))
        if changes and not _write(holder, changes):
            return
    if changes or any(row.waiting for row in rows):
        for name in options.receivers():
            delivery.send(holder, name)


@transaction.atomic
def _write(holder: str, changes: list[tuple[Alert, Event]]) -> bool:
    """Write the changes with what the receivers are to get; nothing, and return False, without the lease."""
    if not named_leases.hold(delivery.LEASE, holder):
        return False
    for alert, event in changes:
        if event == Event.FORGOTTEN:
            alert.delete()
            continue
        if event != Event.CHANGED:
            log = logger.info if event == Event.RESOLVED else logger.warning
            log("Alert %s: %s", event, alert.sentence, extra={"alert": alert.name, "target": alert.target})
            for name in options.receivers():
                events = alert.waiting.setdefault(name, {"events": []})["events"]
                if event != Event.REPEAT or not events:  # The notice that waits says the same.
                    events.append(str(event))
        alert.save()
    return True
