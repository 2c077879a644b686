"""The alerts that fire, for those who watch."""

from typing import Any

from django.db.models import Exists, OuterRef

from ami.telemetry.alerts import options, store
from ami.telemetry.alerts.policy import Key, State
from ami.telemetry.models import Alert
from ami.telemetry.snapshots.shape import AlertFigures


def firing() -> dict[Key, AlertFigures]:
    """Return them; one statement, none where no receiver is configured."""
    if not options.receivers():
        return {}
    waits = Exists(store.unsent().filter(alert=OuterRef("pk")))
    rows: Any = Alert.objects.filter(state=State.FIRING).annotate(waits=waits)
    return {(row.name, row.target): AlertFigures(row.fired_at.timestamp(), not row.waits) for row in rows}
