"""Jobs that nobody works on although somebody should, and jobs that only lack their end."""

from datetime import datetime, timedelta

from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.utils import timezone

from ami.celery.origin import PERSON
from ami.jobs.models import Job
from ami.jobs.models.states import ACTIVE, FINALIZABLE, DispatchMode, JobStatus
from ami.jobs.services import operations
from ami.jobs.services.audits.findings import Findings
from ami.jobs.services.completion import ALL_SETTLED, complete_if_settled
from ami.jobs.services.job_slice import fail
from ami.topology.router import ORIGIN_HEADER

SILENT_SECONDS = 900
"""A started job without a worker is nudged when it was silent for this long; its successor may wait in a queue."""

MOST_TRIES = 3
"""A job that was left by its worker more often than this is failed instead of run again."""

QUEUED_SECONDS = 600
LONGEST_DOUBLINGS = 6
QUEUED = frozenset({JobStatus.PENDING, JobStatus.RECEIVED})
BATCH = 500


def nudge(job_id: int, why: str) -> None:
    """Publish a message that runs the job, where people's jobs run; one too many drops itself.

    Raises:
        kombu.exceptions.OperationalError: the broker did not take it.
    """
    from ami.jobs.tasks import run_job

    run_job.apply_async(kwargs={"job_id": job_id}, headers={ORIGIN_HEADER: PERSON})
    Job.objects.get(pk=job_id).log(why, level="WARNING")


def publish_queued_again() -> Findings:
    """Publish again the message of a job that nobody began: after 10 minutes, then 20, 40... up to 11 hours.

    The message may be lost: its publisher died after the commit, or the broker refused it. It may as well wait in a
    deep queue, which is no stall (hazard 1): the job stays as it is, and a second message that comes too late drops
    itself.
    """
    found = Findings()
    now = timezone.now()
    queued = Job.objects.filter(status__in=QUEUED, lease_owner="").annotate(since=Coalesce("queued_at", "updated_at"))
    old = now - timedelta(seconds=QUEUED_SECONDS)
    for job in queued.filter(since__lt=old).order_by("since")[:BATCH]:
        found.checked += 1
        if _due_again(job) > now:
            continue
        nudge(job.pk, "Nobody has begun this job; its message is published again.")
        same = Job.objects.filter(pk=job.pk, queued_at=job.queued_at)
        same.update(queued_at=now, queued_times=F("queued_times") + 1)
        found.fixed += 1
    return found


def _due_again(job: Job) -> datetime:
    since: datetime = max(filter(None, (job.queued_at or job.updated_at, job.scheduled_at)))
    return since + timedelta(seconds=QUEUED_SECONDS * 2 ** min(max(job.queued_times - 1, 0), LONGEST_DOUBLINGS))


def run_stalled_again() -> Findings:
    """Publish jobs again whose worker vanished: the lease ran out, or nobody took over for a quarter of an hour.

    One that nobody has begun is `publish_queued_again`'s.
    """
    found = Findings()
    now = timezone.now()
    vanished = Q(lease_expires_at__lt=now) & ~Q(lease_owner="")
    long_ago = now - timedelta(seconds=SILENT_SECONDS)
    silent = Q(status__in=ACTIVE, lease_owner="", heartbeat_at__lt=long_ago) & ~_waits_for_results()
    for job in Job.objects.filter(vanished | silent, status__in=ACTIVE | {JobStatus.PENDING, JobStatus.RECEIVED}):
        found.checked += 1
        same = Job.objects.filter(pk=job.pk, lease_owner=job.lease_owner, heartbeat_at=job.heartbeat_at)
        lost = 1 if job.lease_owner else 0
        if not same.update(lease_owner="", lease_expires_at=None, heartbeat_at=now, tries=F("tries") + lost):
            continue
        if lost and job.tries >= MOST_TRIES:
            # Its message was buried after its own retries each time: whatever it does, it ends the process it runs in.
            fail(job, "The worker vanished with this job again and again; look for its message in the dead letters.")
        else:
            nudge(job.pk, "Nobody works on this job any more; it is run again from where it stood.")
        found.fixed += 1
    return found


def _waits_for_results() -> Q:
    """An asynchronous job with nothing left to publish waits for workers, not for us."""
    pending = Job.objects.filter(images__state="pending").values("pk")
    return Q(dispatch_mode=DispatchMode.ASYNC_API, collected_at__isnull=False) & ~Q(pk__in=pending)


def finish_complete() -> Findings:
    """Finish jobs whose images are all settled; whoever settled the last one may have died before saying so."""
    found = Findings()
    ready = Job.objects.filter(ALL_SETTLED, status__in=FINALIZABLE)
    for job_id in ready.order_by("pk").values_list("pk", flat=True):
        found.checked += 1
        found.fixed += complete_if_settled(job_id)
    return found


def finish_cancelled() -> Findings:
    """Revoke jobs that are being cancelled and that nobody works on."""
    found = Findings()
    for job in Job.objects.filter(status=JobStatus.CANCELING):
        found.checked += 1
        found.fixed += operations.finish_cancel(job)
    return found
