"""Finishes a job whose images are all settled, by one cheap conditional query."""

import logging
from dataclasses import asdict
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from ami.jobs.errors import NatsUnavailable
from ami.jobs.models import Job, JobImage
from ami.jobs.models.states import FINAL, FINALIZABLE, UNSETTLED, DispatchMode, JobStatus
from ami.jobs.services import jetstream
from ami.jobs.services.progress import counts_with_errors
from ami.jobs.services.transitions import move
from ami.main.services.compiled_query import CompiledQuery

logger = logging.getLogger(__name__)

_unsettled = Exists(JobImage.objects.filter(job_id=OuterRef("pk"), state__in=UNSETTLED))
ALL_SETTLED = Q(collected_at__isnull=False) & ~Q(_unsettled)


@CompiledQuery
def _settled(job_id: int) -> QuerySet[Job, Any]:
    return Job.objects.filter(ALL_SETTLED, pk=job_id, status__in=FINALIZABLE).order_by().values_list("pk")


def complete_if_settled(job_id: int) -> bool:
    """Finish the job if all images are collected and settled; return whether this call finished it."""
    if not _settled.rows(job_id) or (ready := Job.objects.filter(pk=job_id).first()) is None:
        return False
    counts = counts_with_errors(job_id)
    job = ready
    if not move(job, counts.final_status, when=ALL_SETTLED, image_counts=asdict(counts)):
        return False
    share = f"{counts.captures} of {counts.total} images processed, {counts.failed} failed"
    reasons = "".join(f"\n{sentence}" for sentence in counts.errors)
    job.log(f"Finished as {job.status}: {share}.{reasons}", level=_level(job, counts.failed))
    if job.dispatch_mode == DispatchMode.ASYNC_API:
        transaction.on_commit(lambda: clean_up(job_id))
    return True


def recount(job_id: int) -> None:
    """Store the counts of a finished job again, after a late result has settled an image that counted as lost."""
    finished = Job.objects.filter(pk=job_id, status__in=FINAL, image_counts__isnull=False)
    if finished.exists():
        finished.update(image_counts=asdict(counts_with_errors(job_id)))


def _level(job: Job, failed: int) -> str:
    """Return the level of the last line: a success with failed images is a warning."""
    if job.status != JobStatus.SUCCESS:
        return "ERROR"
    return "WARNING" if failed else "INFO"


def clean_up(job_id: int) -> None:
    """Delete the job's stream and consumers; if NATS is unreachable, the audit deletes them later."""
    try:
        jetstream.delete_job(job_id)
    except NatsUnavailable as error:
        logger.warning("Deleting the stream of job %s left to the audit: %s", job_id, error, extra={"job": job_id})
