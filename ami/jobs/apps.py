"""The Django app `jobs`."""

from django.apps import AppConfig


class JobsConfig(AppConfig):
    """Registers the kinds of jobs of the core and of `ml`; `ami.exports` registers its own."""

    name = "ami.jobs"
    label = "jobs"
    verbose_name = "Jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import the modules that register job kinds, and connect the port through which `ami.main` starts jobs."""
        from ami.jobs import tasks  # noqa: F401 - services publish them by name
        from ami.jobs.services import core_jobs, ml_job, operations, post_processing_jobs  # noqa: F401
        from ami.main.services import job_port

        job_port.connect(operations.create_and_enqueue)
