"""What receivers get about an alert: the same values for all of them."""

from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from ami.telemetry.alerts.policy import Event
from ami.telemetry.models import Alert

#: Raised when a field changes its meaning or goes; new ones may come.
VERSION = 1
HANDBOOK = "/admin/queues/handbook/"
WORDS = {Event.FIRING: "FIRING", Event.REPEAT: "STILL FIRING", Event.RESOLVED: "RESOLVED", Event.TEST: "TEST"}


def body(alert: Alert, event: Event) -> dict[str, Any]:
    """Return the JSON of the handbook; without a public address it has no ``remedy`` and no ``deployment``."""
    title = " ".join(f"{WORDS[event]} {alert.name} {alert.target}".split())
    address = settings.ANTENNA_PUBLIC_URL.rstrip("/")
    repeat = f"-{alert.noticed_at:%Y%m%dT%H%M%S}" if event == Event.REPEAT else ""
    return {
        "version": VERSION,
        "id": f"{alert.pk or 0}-{event}{repeat}",
        "event": str(event),
        "title": title,
        "text": f"{title}: {alert.sentence}",
        "alert": {
            "name": alert.name,
            "target": alert.target,
            "level": alert.level,
            "sentence": alert.sentence,
            "since": _text(alert.since),
            "fired_at": _text(alert.fired_at),
            "resolved_at": _text(alert.resolved_at) if event == Event.RESOLVED else None,
        },
        **({"remedy": f"{address}{HANDBOOK}#{alert.name}", "deployment": address} if address else {}),
        "sent_at": _text(timezone.now()),
    }


def _text(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None
