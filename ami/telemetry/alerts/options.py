"""What the settings say about alerts."""

from datetime import timedelta

from django.conf import settings

from ami.telemetry.alerts.policy import Patience
from ami.telemetry.models import Alert

WEBHOOK, EMAIL = "webhook", "email"
#: An alert is shown for so long after it was over, and waits so long for a receiver.
KEPT = timedelta(hours=24)


def receivers() -> tuple[str, ...]:
    """Return the receivers that are configured; without any nothing is evaluated."""
    found = [WEBHOOK] if settings.ANTENNA_ALERT_WEBHOOK_URL else []
    return (*found, EMAIL) if settings.ANTENNA_ALERT_EMAIL else tuple(found)


def is_sent(alert: Alert) -> bool:
    """Whether no configured receiver has still to get something about it."""
    return not any(name in alert.waiting for name in receivers())


def patience() -> Patience:
    repeat = settings.ANTENNA_ALERT_REPEAT_SECONDS
    return Patience(timedelta(seconds=repeat) if repeat else None, settings.ANTENNA_ALERT_DURATION_FACTOR)
