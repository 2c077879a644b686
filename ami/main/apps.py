"""The Django app `main`."""

from django.apps import AppConfig


class MainConfig(AppConfig):
    """Connects the core's signals when Django is ready."""

    name = "ami.main"
    label = "main"
    verbose_name = "Antenna"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ami.main import signals  # noqa: F401
