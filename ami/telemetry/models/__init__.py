"""What telemetry keeps in the database."""

from ami.telemetry.models.alert import Alert
from ami.telemetry.models.audit_position import AuditPosition
from ami.telemetry.models.sample import Sample
from ami.telemetry.models.shared_value import SharedValue
from ami.telemetry.models.task_histogram import CountedTotals, TaskHistogram, TaskTotal
from ami.telemetry.models.unrouted_task import UnroutedTask

__all__ = [
    "Alert",
    "AuditPosition",
    "CountedTotals",
    "Sample",
    "SharedValue",
    "TaskHistogram",
    "TaskTotal",
    "UnroutedTask",
]
