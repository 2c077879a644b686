"""The Django app of telemetry."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """Holds the counters that outlive a process."""

    name = "ami.telemetry"
    label = "telemetry"
    default_auto_field = "django.db.models.BigAutoField"
