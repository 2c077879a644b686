"""Jobs, their logs, images and stored results."""

from ami.jobs.models.image import JobImage
from ami.jobs.models.job import Job
from ami.jobs.models.log import JobLog
from ami.jobs.models.stored_result import StoredResult

__all__ = ["Job", "JobImage", "JobLog", "StoredResult"]
