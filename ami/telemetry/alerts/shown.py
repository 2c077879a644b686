"""The alerts that fire, for those who watch."""

from ami.telemetry.alerts import options
from ami.telemetry.alerts.policy import Key
from ami.telemetry.models import Alert
from ami.telemetry.snapshots.shape import AlertFigures


def firing() -> dict[Key, AlertFigures]:
    """Return them; one statement, none where no receiver is configured."""
    rows = Alert.objects.filter(resolved_at=None).exclude(fired_at=None) if options.receivers() else ()
    return {row.key: AlertFigures(row.fired_at.timestamp(), options.is_sent(row)) for row in rows if row.fired_at}
