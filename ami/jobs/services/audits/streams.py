"""Streams on JetStream and the jobs that they belong to."""

import logging
from datetime import timedelta

from django.utils import timezone

from ami.jobs.models import Job
from ami.jobs.models.states import ACTIVE, FINAL, DispatchMode
from ami.jobs.services import jetstream
from ami.jobs.services.audits.findings import Findings

logger = logging.getLogger(__name__)

ORPHAN_SECONDS = 3600


def delete_orphan_streams() -> Findings:
    """Delete streams older than an hour whose job is final or does not exist (incident 31)."""
    found = Findings()
    old = timezone.now() - timedelta(seconds=ORPHAN_SECONDS)
    streams = [stream for stream in jetstream.job_streams() if stream.created_at < old]
    ids = [stream.job_id for stream in streams]
    alive = set(Job.objects.filter(pk__in=ids).exclude(status__in=FINAL).values_list("pk", flat=True))
    for stream in streams:
        found.checked += 1
        if stream.job_id not in alive:
            found.fixed += jetstream.delete_job(stream.job_id)
            logger.info("Deleted the orphan stream of job %s with %d messages.", stream.job_id, stream.messages)
    return found


def snapshot_running_jobs() -> Findings:
    """Log the consumer's counters of every running asynchronous job."""
    found = Findings()
    for job in Job.objects.filter(status__in=ACTIVE, dispatch_mode=DispatchMode.ASYNC_API).order_by("pk"):
        found.checked += 1
        if (state := jetstream.consumer_state(job.pk)) is not None:
            logger.info("Job %s on JetStream: %s", job.pk, state)
    return found
