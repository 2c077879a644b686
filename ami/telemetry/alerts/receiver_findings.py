"""A receiver of alerts that fails."""

from collections.abc import Iterator

from ami.celery.shown_time import shown_time
from ami.celery.thread_database import database_block
from ami.queues.diagnostics.finding import Finding
from ami.telemetry.alerts import options
from ami.telemetry.models import AlertReceiver

REMEDIES = {
    options.WEBHOOK: "correct ANTENNA_ALERT_WEBHOOK_URL",
    options.EMAIL: "correct EMAIL_URL and ANTENNA_ALERT_EMAIL",
}


def findings() -> Iterator[Finding]:
    """Yield a finding for each receiver that does not accept alerts; one statement where any is configured."""
    if not (names := options.receivers()):
        return
    with database_block():
        failing = list(AlertReceiver.objects.filter(name__in=names, failures__gt=0).order_by("name"))
    for row in failing:
        since = shown_time(row.failing_since)
        yield Finding(
            "warning",
            "alert-receiver",
            f"{row.name} does not accept alerts since {since}, {row.failures} tries: {row.error}. What waits is sent "
            f"when it does. Look at its log or {REMEDIES[row.name]}; 'manage.py queues alerts test' tries it.",
            row.name,
        )
