"""Runs one slice of a job: claims its lease, advances it, and returns whether a successor is needed."""

import logging
from enum import Enum

from billiard.exceptions import SoftTimeLimitExceeded
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from ami.celery import leases
from ami.jobs.errors import JobStopped
from ami.jobs.models import Job
from ami.jobs.models.job import LEASE_SECONDS
from ami.jobs.models.states import ACTIVE, FINAL, DispatchMode, JobStatus
from ami.jobs.services import db_interrupt, job_completion, operations, worker_presence
from ami.jobs.services.job_kinds import SliceOfWork, kind_of
from ami.jobs.services.transitions import move

logger = logging.getLogger(__name__)


class Next(Enum):
    """What the caller of a slice has to do next."""

    NOTHING = "nothing"
    SUCCESSOR = "publish the successor"


def run_slice(job: Job, task_id: str, work: SliceOfWork) -> Next:
    """Advance the job by one slice if its lease can be claimed.

    A redelivered message, or a retry, takes the lease over from the run before it, whose later writes are refused; a
    duplicate message for a running job drops itself. Nothing is reset: the job continues from its cursor (hazard 10).

    Raises:
        UnknownKind: no code is registered for the job's type.
        Exception: any error of the kind's code, after the lease is released. The error of a run that no longer holds
            the lease is logged alone: the job is another run's.
    """
    if job.is_final or not claim(job, task_id):
        logger.info("Slice skipped: job %s is %s, leased by '%s'", job.pk, job.status, job.holder)
        return Next.NOTHING
    if operations.finish_cancel(job, holder=job.held_as) or not _start(job):
        release(job)
        return Next.NOTHING
    try:
        finished = _advance(job, work)
        if finished:
            kind_of(job.job_type_key).finish(job)
    except JobStopped:
        _stop(job)
        return Next.NOTHING
    except Exception as error:
        if release(job):
            raise
        logger.warning("Slice of job %s had lost its lease and failed: %r", job.pk, error)
        return Next.NOTHING
    except BaseException:
        release(job)
        raise
    if not finished:
        return Next.SUCCESSOR if release(job) else Next.NOTHING
    _stop(job)
    return Next.NOTHING


def claim(job: Job, task_id: str) -> bool:
    """Claim the job's lease for one run; a redelivered message takes it over from the run that had the same task id."""
    holder, values = leases.new_holder(), {"heartbeat_at": timezone.now(), "task_id": task_id}
    rows, same = Job.objects.filter(pk=job.pk), Q(task_id=task_id)
    taken = leases.take(rows, holder, LEASE_SECONDS, also=same, **values)
    if taken:
        job.held_as = holder
        job.refresh_from_db()
    return bool(taken)


def release(job: Job) -> bool:
    """Release the lease that `claim` took for ``job``; False if another run holds it now."""
    return bool(leases.release(Job.objects.filter(pk=job.pk), job.held_as, heartbeat_at=timezone.now()))


def release_of_dead(incarnation: str) -> None:
    """Release the job leases of a worker that is dead, so that they need not run out."""
    if count := leases.release_of_dead(Job.objects.filter(status__in=frozenset(JobStatus) - FINAL), incarnation):
        logger.warning("Leases of a dead worker released: %d jobs", count, extra={"worker": incarnation})


def seconds_to_wait(job: Job) -> float:
    """Return the seconds until the job may begin; 0 if it may begin now."""
    if job.scheduled_at is None or job.started_at is not None:
        return 0.0
    return max(0.0, (job.scheduled_at - timezone.now()).total_seconds())


def fail(job: Job, error: str) -> bool:
    """Fail the job and delete its stream; False if it is already final, or another run has claimed it.

    A job being cancelled is revoked instead.
    """
    params = {**job.params, "error": error[:2000]}
    if not move(job, JobStatus.FAILURE, when=Q(holder=""), params=params):
        return operations.finish_cancel(job)
    job.log(f"Failed: {error}", level="ERROR")
    if job.dispatch_mode == DispatchMode.ASYNC_API:
        transaction.on_commit(lambda: job_completion.clean_up(job.pk))
    return True


def _start(job: Job) -> bool:
    if job.status == JobStatus.STARTED:
        return True
    is_new = job.status != JobStatus.RETRY
    if not move(job, JobStatus.STARTED, when=Q(holder=job.held_as)):
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


def _stop(job: Job) -> None:
    """Release the lease; revoke the job if it was cancelled during the slice."""
    operations.finish_cancel(job, holder=job.held_as)
    release(job)
