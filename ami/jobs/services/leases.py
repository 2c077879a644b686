"""Who works on a job: a lease on its row, taken and given back by conditional updates."""

from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from ami.jobs.models import Job
from ami.jobs.models.job import LEASE_SECONDS


def free_for(owner: str) -> Q:
    """Return the condition that ``owner`` may take: nobody has it, ``owner`` has it, or it ran out."""
    return Q(lease_owner="") | Q(lease_owner=owner) | Q(lease_expires_at__lt=timezone.now())


def claim(job: Job, owner: str) -> bool:
    """Take the job's lease; a redelivered message has its old task id and so takes its own lease again at once."""
    now = timezone.now()
    expires = now + timedelta(seconds=LEASE_SECONDS)
    values = {"lease_owner": owner, "lease_expires_at": expires, "heartbeat_at": now}
    taken = Job.objects.filter(free_for(owner), pk=job.pk).update(**values, task_id=owner)
    if taken:
        job.refresh_from_db()
    return bool(taken)


def release(job: Job, owner: str) -> bool:
    """Give the lease back; nothing happens if somebody else has it by now."""
    mine = Job.objects.filter(pk=job.pk, lease_owner=owner)
    return bool(mine.update(lease_owner="", lease_expires_at=None, heartbeat_at=timezone.now()))


def nobody_works() -> Q:
    """Return the condition that no live lease exists."""
    return Q(lease_owner="") | Q(lease_expires_at__lt=timezone.now()) | Q(lease_expires_at__isnull=True)
