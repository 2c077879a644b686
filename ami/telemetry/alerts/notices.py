"""What receivers get about an alert: the same values for all of them."""

from datetime import datetime
from typing import Any

from django.conf import settings

from ami.telemetry.alerts.policy import Alert, Event

#: Raised when a field changes its meaning or goes; new ones may come.
VERSION = 1
HANDBOOK = "/admin/queues/handbook/"
WORDS = {Event.FIRING: "FIRING", Event.REPEAT: "STILL FIRING", Event.RESOLVED: "RESOLVED", Event.TEST: "TEST"}


def body(alert: Alert, event: Event) -> dict[str, Any]:
    """Return the JSON of docs/operations.md, but for ``id`` and ``sent_at``."""
    address = settings.ANTENNA_PUBLIC_URL.rstrip("/")
    return {
        "version": VERSION,
        "event": str(event),
        "title": title(alert, event),
        "text": f"{title(alert, event)}: {alert.sentence}",
        "alert": {
            "name": alert.name,
            "target": alert.target,
            "level": alert.level,
            "sentence": alert.sentence,
            "since": _text(alert.since),
            "fired_at": _text(alert.fired_at),
            "resolved_at": _text(alert.resolved_at) if event == Event.RESOLVED else None,
            "flaps": alert.flaps,
        },
        "remedy": f"{address}{HANDBOOK}#{alert.name}" if address else "",
        "deployment": address,
    }


def title(alert: Alert, event: Event) -> str:
    """Return one line, such as ``FIRING no-consumer antenna-ingest``."""
    return " ".join(f"{WORDS[event]} {alert.name} {alert.target}".split())


def _text(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None
