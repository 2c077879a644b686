"""The admin of jobs, of their images, and of the results that workers posted."""

from ami.jobs.admin import images, jobs

__all__ = ["images", "jobs"]
