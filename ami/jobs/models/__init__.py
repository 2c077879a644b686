"""The job, its log, its images and the results that came in for it."""

from ami.jobs.models.image import JobImage
from ami.jobs.models.job import Job
from ami.jobs.models.log import JobLog
from ami.jobs.models.stored_result import StoredResult

__all__ = ["Job", "JobImage", "JobLog", "StoredResult"]
