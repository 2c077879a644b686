"""The Django app of the queue operations."""

from django.apps import AppConfig


class QueuesConfig(AppConfig):
    """Registers the system checks."""

    name = "ami.queues"
    label = "queues"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ami.queues import checks  # noqa: F401
