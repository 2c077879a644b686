"""The Django app `exports`."""

from django.apps import AppConfig


class ExportsConfig(AppConfig):
    """Registers the job kind, the formats and the signals of exports when Django is ready."""

    name = "ami.exports"
    label = "exports"
    verbose_name = "Exports"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ami.exports import signals  # noqa: F401
        from ami.exports.services import export_job, formats  # noqa: F401
