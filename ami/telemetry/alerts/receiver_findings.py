"""A receiver of alerts that fails."""

from collections.abc import Iterator
from typing import Any

from ami.celery.shown_time import shown_time
from ami.celery.thread_database import database_block
from ami.queues.diagnostics.finding import Finding
from ami.telemetry.alerts import options
from ami.telemetry.models import Alert

REMEDIES = {
    options.WEBHOOK: "correct ANTENNA_ALERT_WEBHOOK_URL",
    options.EMAIL: "correct EMAIL_URL and ANTENNA_ALERT_EMAIL",
}


def states() -> list[dict[str, Any]]:
    """Return how each configured receiver is, by what waits for it; one statement where any is configured."""
    names = options.receivers()
    rows = list(Alert.objects.exclude(waiting={}).order_by("pk").values_list("waiting", flat=True)) if names else []
    return [_state(name, [waiting[name] for waiting in rows if name in waiting]) for name in names]


def _state(name: str, waiting: list[dict[str, Any]]) -> dict[str, Any]:
    failed = [entry for entry in waiting if "why" in entry]
    return {
        "receiver": name,
        "state": "fails" if failed else "works",
        "waiting": sum(len(entry["events"]) for entry in waiting),
        "since": min((entry["since"] for entry in failed), default=None),
        "tries": sum(entry["tries"] for entry in failed) or None,
        "why": failed[-1]["why"] if failed else None,
    }


def findings() -> Iterator[Finding]:
    """Yield a finding for each receiver that does not accept alerts."""
    with database_block():
        failing = [state for state in states() if state["why"]]
    for state in failing:
        name = state["receiver"]
        yield Finding(
            "warning",
            "alert-receiver",
            f"{name} does not accept alerts since {shown_time(state['since'])}, {state['tries']} tries: "
            f"{state['why']}. What waits is sent when it does. Look at its log or {REMEDIES[name]}; 'manage.py queues "
            "alerts test' tries it.",
            name,
        )
