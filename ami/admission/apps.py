"""The Django app of admission."""

from django.apps import AppConfig


class AdmissionConfig(AppConfig):
    """Registers the system checks."""

    name = "ami.admission"
    label = "admission"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ami.admission import checks  # noqa: F401
