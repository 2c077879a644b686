"""Keeps the alerts and their notices: what a process that takes the lease over goes on with."""

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from celery.utils.log import get_logger
from django.db import transaction
from django.db.models.functions import Now

from ami.queues import named_leases
from ami.queues.models import Lease
from ami.telemetry.alerts import notices
from ami.telemetry.alerts.policy import Alert, Change, Event, Key, State
from ami.telemetry.models import Alert as AlertRow
from ami.telemetry.models import AlertNotice, AlertReceiver

logger = get_logger(__name__)

LEASE = "sampler"
NAMES = tuple(each.name for each in fields(Alert))
#: What is over and sent is kept so long, to be looked at.
KEPT = timedelta(days=7)


@dataclass
class Memory:
    """What the holder of the lease knows without asking. ``at`` is the database's time at ``read_at``, monotonic."""

    at: datetime
    alerts: dict[Key, Alert] = field(default_factory=dict)
    receivers: dict[str, AlertReceiver] = field(default_factory=dict)
    has_unsent: bool = False
    read_at: float = field(default_factory=time.monotonic)

    def now(self) -> datetime:
        """Return the database's time, from this process's clock."""
        return self.at + timedelta(seconds=time.monotonic() - self.read_at)


def load(holder: str) -> Memory | None:
    """Return what is on record, None where another process has the lease; four statements."""
    row: Any = Lease.objects.filter(name=LEASE, holder=holder, until__gt=Now()).annotate(now=Now()).first()
    if row is None:
        return None
    memory = Memory(row.now, _alerts())
    memory.receivers = AlertReceiver.objects.in_bulk()
    memory.has_unsent = unsent().exists()
    return memory


def unsent() -> Any:
    """Return the notices that wait, oldest first."""
    return AlertNotice.objects.filter(sent_at=None, given_up_at=None).order_by("pk")


def apply(
    holder: str, receivers: Iterable[str], now: datetime, decide: Callable[[dict[Key, Alert]], Iterable[Change]]
) -> dict[Key, Alert] | None:
    """Decide by what is on record, and write the changes with their notices; return the alerts.

    None, with nothing written, where another process has the lease.
    """
    with transaction.atomic():
        if not named_leases.hold(LEASE, holder):
            return None
        alerts = _alerts()
        changes = list(decide(alerts))
        for change in changes:
            _write(change, tuple(receivers), now)
    for change in changes:
        if change.after is None and change.before is not None:
            del alerts[change.before.key]
        elif change.after is not None:
            alerts[change.after.key] = change.after
    return alerts


def forget_old() -> None:
    """Delete what has been over for long, and what was sent long ago; two statements."""
    before = Now() - KEPT
    AlertRow.objects.filter(state=State.RESOLVED, resolved_at__lt=before).delete()
    AlertNotice.objects.filter(created_at__lt=before).exclude(sent_at=None, alert__state=State.FIRING).delete()


def _alerts() -> dict[Key, Alert]:
    found = (Alert(**row) for row in AlertRow.objects.values(*NAMES))
    return {alert.key: alert for alert in found}


def _write(change: Change, receivers: tuple[str, ...], now: datetime) -> None:
    if change.after is None:
        if change.before is not None:
            AlertRow.objects.filter(name=change.before.name, target=change.before.target).delete()
        return
    alert = change.after
    values = asdict(alert)
    key = {name: values.pop(name) for name in ("name", "target")}
    row, _ = AlertRow.objects.update_or_create(**key, defaults=values)
    if change.event is None:
        return
    log = logger.info if change.event == Event.RESOLVED else logger.warning
    log("Alert %s: %s", change.event, alert.sentence, extra={"alert": alert.name, "target": alert.target})
    body = notices.body(alert, change.event)
    AlertNotice.objects.bulk_create(
        AlertNotice(alert=row, receiver=name, event=change.event, body=body, created_at=now)
        for name in receivers
        if name not in _told(row, change.event)
    )


def _told(row: AlertRow, event: Event) -> set[str]:
    """Return the receivers that need no repetition: the notice that they have not got says the same."""
    if event != Event.REPEAT:
        return set()
    return set(unsent().filter(alert=row).exclude(event=Event.RESOLVED).values_list("receiver", flat=True))
