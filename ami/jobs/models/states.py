"""The statuses of a job, the states of an image, and the dispatch modes."""

from django.db import models


class JobStatus(models.TextChoices):
    """The status of a job; it changes only through `ami.jobs.services.transitions`."""

    CREATED = "CREATED"
    PENDING = "PENDING"
    RECEIVED = "RECEIVED"
    STARTED = "STARTED"
    RETRY = "RETRY"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    CANCELING = "CANCELING"
    REVOKED = "REVOKED"
    UNKNOWN = "UNKNOWN"


FINAL = frozenset({JobStatus.SUCCESS, JobStatus.FAILURE, JobStatus.REVOKED})
ACTIVE = frozenset({JobStatus.STARTED, JobStatus.RETRY})
"""May serve tasks to pull workers."""
FINALIZABLE = frozenset({JobStatus.CREATED, JobStatus.PENDING, JobStatus.STARTED, JobStatus.RETRY})
"""Statuses from which a job with no work left may be finished."""


class ImageState(models.TextChoices):
    """The state of one image of a job."""

    PENDING = "pending"
    PUBLISHED = "published"
    CLAIMED = "claimed"
    PROCESSED = "processed"
    FAILED = "failed"


UNSETTLED = frozenset({ImageState.PENDING, ImageState.PUBLISHED, ImageState.CLAIMED})


class DispatchMode(models.TextChoices):
    """How a job's images reach a processing service; fixed when the job is created."""

    INTERNAL = "internal"
    SYNC_API = "sync_api"
    ASYNC_API = "async_api"
