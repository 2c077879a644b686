"""What the settings say about alerts."""

from datetime import timedelta

from django.conf import settings

from ami.telemetry.alerts.policy import Patience

WEBHOOK, EMAIL = "webhook", "email"


def receivers() -> tuple[str, ...]:
    """Return the receivers that are configured; without any nothing is evaluated."""
    found = [WEBHOOK] if settings.ANTENNA_ALERT_WEBHOOK_URL else []
    return (*found, EMAIL) if settings.ANTENNA_ALERT_EMAIL else tuple(found)


def patience() -> Patience:
    repeat = settings.ANTENNA_ALERT_REPEAT_SECONDS
    return Patience(
        interval=timedelta(seconds=settings.ANTENNA_ALERT_INTERVAL_SECONDS),
        repeat=timedelta(seconds=repeat) if repeat else None,
        factor=settings.ANTENNA_ALERT_DURATION_FACTOR,
    )
