"""Connects what no layer may import: signals of one layer to the listeners of another."""

from django.apps import AppConfig


class CompositionConfig(AppConfig):
    """Loaded last; wires the ports between the apps."""

    name = "config"
    label = "composition"

    def ready(self) -> None:
        """Connect telemetry to Celery's signals."""
        from ami.telemetry import listen

        listen.connect()
