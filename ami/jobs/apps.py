"""The Django app `jobs`."""

from django.apps import AppConfig


class JobsConfig(AppConfig):
    """Registers the kind `ml` when Django is ready; other apps register theirs in their own ``ready``."""

    name = "ami.jobs"
    label = "jobs"
    verbose_name = "Jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import what registers itself."""
        from ami.jobs.services import ml_job  # noqa: F401
