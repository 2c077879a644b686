"""Runs one slice of a job: claims its lease, advances it, and returns whether a successor is needed."""

import logging
from enum import Enum

from billiard.exceptions import SoftTimeLimitExceeded
from django.db import transaction
from django.utils import timezone

from ami.jobs.errors import JobStopped
from ami.jobs.models import Job
from ami.jobs.models.job import LEASE_SECONDS
from ami.jobs.models.states import ACTIVE, DispatchMode, JobStatus
from ami.jobs.services import db_interrupt, job_completion, operations, worker_presence
from ami.jobs.services.job_kinds import SliceOfWork, kind_of
from ami.jobs.services.transitions import move
from ami.main.services import leases

logger = logging.getLogger(__name__)


class Next(Enum):
    """What the caller of a slice has to do next."""

    NOTHING = "nothing"
    SUCCESSOR = "publish the successor"


def run_slice(job: Job, owner: str, work: SliceOfWork) -> Next:
    """Advance the job by one slice if its lease can be claimed.

    A redelivered message has the same id as ``owner`` and claims its own lease again; a duplicate message for a running
    job drops itself. Nothing is reset: the job continues from its cursor (hazard 10).

    Raises:
        UnknownKind: no code is registered for the job's type.
        Exception: any error of the kind's code, after the lease is released.
    """
    if job.is_final or not claim(job, owner):
        logger.info("Slice skipped: job %s is %s, leased by '%s'", job.pk, job.status, job.lease_owner)
        return Next.NOTHING
    if operations.finish_cancel(job, owner=owner) or not _start(job):
        release(job, owner)
        return Next.NOTHING
    try:
        finished = _advance(job, work)
    except JobStopped:
        _stop(job, owner)
        return Next.NOTHING
    except BaseException:
        release(job, owner)
        raise
    if not finished:
        release(job, owner)
        return Next.SUCCESSOR
    kind_of(job.job_type_key).finish(job)
    _stop(job, owner)
    return Next.NOTHING


def claim(job: Job, owner: str) -> bool:
    """Claim the job's lease; a redelivered message has its old task id and so claims its own lease again."""
    values = {"heartbeat_at": timezone.now(), "task_id": owner}
    taken = leases.acquire(Job.objects.filter(pk=job.pk), owner, LEASE_SECONDS, **values)
    if taken:
        job.refresh_from_db()
    return taken


def release(job: Job, owner: str) -> bool:
    """Release the job's lease; False if another worker holds it."""
    return leases.release(Job.objects.filter(pk=job.pk), owner, heartbeat_at=timezone.now())


def seconds_to_wait(job: Job) -> float:
    """Return the seconds until the job may begin; 0 if it may begin now."""
    if job.scheduled_at is None or job.started_at is not None:
        return 0.0
    return max(0.0, (job.scheduled_at - timezone.now()).total_seconds())


def fail(job: Job, error: str) -> bool:
    """Fail the job and delete its stream; False if it is already final. A job being cancelled is revoked instead."""
    params = {**job.params, "error": error[:2000]}
    if not move(job, JobStatus.FAILURE, params=params):
        return operations.finish_cancel(job)
    job.log(f"Failed: {error}", level="ERROR")
    if job.dispatch_mode == DispatchMode.ASYNC_API:
        transaction.on_commit(lambda: job_completion.clean_up(job.pk))
    return True


def _start(job: Job) -> bool:
    if job.status == JobStatus.STARTED:
        return True
    is_new = job.status != JobStatus.RETRY
    if not move(job, JobStatus.STARTED):
        return job.status in ACTIVE
    if is_new:
        worker_presence.warn_if_nobody_online(job)
    return True


def _advance(job: Job, work: SliceOfWork) -> bool:
    """Run the kind's code; a soft time limit ends the slice, not the job (incident 35)."""
    try:
        with db_interrupt.cancel_query_on_soft_limit():
            return kind_of(job.job_type_key).advance(job, work)
    except SoftTimeLimitExceeded:
        job.log("The slice reached its soft time limit; the job continues in another slice.", level="WARNING")
        return False


def _stop(job: Job, owner: str) -> None:
    """Release the lease; revoke the job if it was cancelled during the slice."""
    operations.finish_cancel(job, owner=owner)
    release(job, owner)
