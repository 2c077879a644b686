"""The Django app `ml`."""

from django.apps import AppConfig


class MlConfig(AppConfig):
    """Pipelines, algorithms and the processing services that run them."""

    name = "ami.ml"
    label = "ml"
    verbose_name = "Machine learning"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks."""
        from ami.ml import checks  # noqa: F401
