"""Runs stalled jobs again, republishes jobs that never began, and finishes complete or cancelled ones."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.utils import timezone

from ami.admission.calls import has_call
from ami.celery import leases
from ami.celery.origin import PERSON
from ami.jobs.models import Job
from ami.jobs.models.states import ACTIVE, FINALIZABLE, DispatchMode, JobStatus
from ami.jobs.services import operations
from ami.jobs.services.audits.findings import Findings
from ami.jobs.services.job_completion import ALL_SETTLED, complete_if_settled
from ami.jobs.services.job_slice import fail
from ami.queues.publish import publish_many, signature

SILENT_SECONDS = 900
"""A started job without a lease is run again after this time without a heartbeat; its message may be queued."""

MOST_TRIES = 3
"""A job whose worker died more often than this fails instead of being run again."""

QUEUED_SECONDS = 600
LONGEST_DOUBLINGS = 6
QUEUED = frozenset({JobStatus.PENDING, JobStatus.RECEIVED})
BATCH = 500


def publish_run_jobs(reasons: Mapping[int, str]) -> None:
    """Let each job run on the queue of user requests; a second call of a job does nothing.

    ``reasons`` by the job's key are logged in the jobs.
    """
    jobs = list(Job.objects.filter(pk__in=reasons).select_related("pipeline"))
    calls = [signature(operations.RUN_JOB, origin=PERSON, **operations.run_job_arguments(job)) for job in jobs]
    for job, task_id in zip(jobs, publish_many(calls), strict=True):
        Job.objects.filter(pk=job.pk, holder="").update(task_id=task_id)
        job.log(reasons[job.pk], level="WARNING")


def republish_unstarted_jobs() -> Findings:
    """Publish the message of a queued job that has not begun again: after 10 minutes, then 20, 40... up to 11 hours.

    Its call was purged, or released by hand. One that waits in a deep queue is not a stall (hazard 1).
    """
    findings = Findings()
    now = timezone.now()
    queued = Job.objects.filter(~has_call("task_id"), status__in=QUEUED, holder="")
    queued = queued.annotate(since=Coalesce("queued_at", "updated_at"))
    old = now - timedelta(seconds=QUEUED_SECONDS)
    waiting = list(queued.filter(since__lt=old).order_by("since")[:BATCH])
    due = [job for job in waiting if _due_again(job) <= now]
    publish_run_jobs({job.pk: "The job has not begun; publishing its message again." for job in due})
    _mark_queued(due, now)
    findings.checked, findings.fixed = len(waiting), len(due)
    return findings


def _mark_queued(jobs: list[Job], now: datetime) -> None:
    for job in jobs:
        same = Job.objects.filter(pk=job.pk, queued_at=job.queued_at)
        same.update(queued_at=now, queued_times=F("queued_times") + 1)


def _due_again(job: Job) -> datetime:
    since: datetime = max(filter(None, (job.queued_at or job.updated_at, job.scheduled_at)))
    return since + timedelta(seconds=QUEUED_SECONDS * 2 ** min(max(job.queued_times - 1, 0), LONGEST_DOUBLINGS))


def rerun_stalled_jobs() -> Findings:
    """Run jobs again whose worker died: the lease expired, or no worker has held it for SILENT_SECONDS.

    Jobs that have not begun are handled by `republish_unstarted_jobs`.
    """
    findings = Findings()
    now = timezone.now()
    vanished = leases.is_free() & ~Q(holder="")
    long_ago = now - timedelta(seconds=SILENT_SECONDS)
    silent = Q(status__in=ACTIVE, holder="", heartbeat_at__lt=long_ago) & ~_waits_for_results()
    again: dict[int, str] = {}
    for job in Job.objects.filter(vanished | silent, status__in=ACTIVE | {JobStatus.PENDING, JobStatus.RECEIVED}):
        findings.checked += 1
        same = Job.objects.filter(pk=job.pk, holder=job.holder, heartbeat_at=job.heartbeat_at)
        lost = 1 if job.holder else 0
        if not same.update(holder="", until=None, heartbeat_at=now, tries=F("tries") + lost):
            continue
        if lost and job.tries >= MOST_TRIES:
            # Its message was buried after its own retries each time: the job kills every process that runs it.
            fail(job, "The worker died repeatedly while running this job; see its message in the dead-letter queue.")
        else:
            again[job.pk] = "No worker holds this job; running it again from its cursor."
        findings.fixed += 1
    publish_run_jobs(again)
    return findings


def _waits_for_results() -> Q:
    """Return the filter for asynchronous jobs with nothing left to publish; they wait for pull workers."""
    pending = Job.objects.filter(images__state="pending").values("pk")
    return Q(dispatch_mode=DispatchMode.ASYNC_API, collected_at__isnull=False) & ~Q(pk__in=pending)


def finish_complete() -> Findings:
    """Finish jobs whose images are all settled; the worker that settled the last one may have died before that."""
    findings = Findings()
    ready = Job.objects.filter(ALL_SETTLED, status__in=FINALIZABLE)
    for job_id in ready.order_by("pk").values_list("pk", flat=True):
        findings.checked += 1
        findings.fixed += complete_if_settled(job_id)
    return findings


def finish_cancelled() -> Findings:
    """Revoke jobs that are being cancelled and have a free lease."""
    findings = Findings()
    for job in Job.objects.filter(status=JobStatus.CANCELING):
        findings.checked += 1
        findings.fixed += operations.finish_cancel(job)
    return findings
