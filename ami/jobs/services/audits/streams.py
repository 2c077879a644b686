"""Deletes orphan streams on JetStream and logs the counters of running jobs."""

import logging
from datetime import timedelta

from django.utils import timezone

from ami.jobs.models import Job
from ami.jobs.models.states import ACTIVE, FINAL, DispatchMode
from ami.jobs.services import jetstream
from ami.jobs.services.audits.findings import Findings
from ami.jobs.services.audits.lost_images import JOBS_AT_ONCE, batched

logger = logging.getLogger(__name__)

ORPHAN_SECONDS = 3600


def delete_orphan_streams() -> Findings:
    """Delete streams older than an hour whose job is final or does not exist (incident 31)."""
    findings = Findings()
    old = timezone.now() - timedelta(seconds=ORPHAN_SECONDS)
    streams = [stream for stream in jetstream.job_streams() if stream.created_at < old]
    ids = [stream.job_id for stream in streams]
    alive = set(Job.objects.filter(pk__in=ids).exclude(status__in=FINAL).values_list("pk", flat=True))
    for stream in streams:
        findings.checked += 1
        if stream.job_id not in alive:
            findings.fixed += jetstream.delete_job(stream.job_id)
            logger.info(
                "Orphan stream of job %s deleted: %d messages",
                stream.job_id,
                stream.messages,
                extra={"job": stream.job_id},
            )
    return findings


def snapshot_running_jobs() -> Findings:
    """Log the consumer's counters of every running asynchronous job."""
    findings = Findings()
    running = Job.objects.filter(status__in=ACTIVE, dispatch_mode=DispatchMode.ASYNC_API).order_by("pk")
    for job_ids in batched(running.values_list("pk", flat=True), JOBS_AT_ONCE):
        findings.checked += len(job_ids)
        for job_id, state in jetstream.consumer_states(job_ids).items():
            if state is not None:
                logger.info("JetStream counters of job %s: %s", job_id, state, extra={"job": job_id})
    return findings
