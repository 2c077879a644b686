"""Whether the last tick of an entry still waits or runs, so that beat sends no other one."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models.functions import Now
from django.utils import timezone

from ami.celery.origin import BEAT
from ami.queues import pauses
from ami.queues.confirmations import STALE
from ami.queues.models import DesiredState, TickClaim, Worker
from ami.topology.topology import Topology

#: An entry without ``expires``, as users make them: its task has been received after this time, where it is read.
NO_EXPIRES_SECONDS = 3600


def why_withheld(entry: int) -> str:
    """Return why no tick of the entry is sent now, as a sentence; empty if one is.

    A tick has ended when its task has, when it was revoked or purged, and at the latest after its ``expires`` plus the
    hard time limit; but that time runs only while its queue is read, or an unread queue would fill up. Where no worker
    of the queue ever reported itself, as in an earlier version, there are no ends to wait for.
    """
    claim = TickClaim.objects.filter(entry=entry, ended_at=None, is_sent=True).select_related("entry").first()
    if claim is None or claim.claimed_at is None:
        return ""
    topology: Topology = settings.ANTENNA_TOPOLOGY
    row = topology.workload(topology.place(claim.entry.task, BEAT).queue)
    if not claim.ends and not is_known(row.queue):
        return ""
    if pauses.paused(row.queue):
        return f"{row.queue} is paused, and the last tick waits there or runs"
    since = read_since(row.queue)
    if since is None:
        return f"no worker reads {row.queue}, where the last tick waits"
    seconds = (claim.entry.expire_seconds or NO_EXPIRES_SECONDS) + row.hard_time_limit_seconds
    is_late = timezone.now() - max(since, claim.claimed_at) > timedelta(seconds=seconds)
    return "" if is_late else "the last tick still waits or runs"


def read_since(queue: str) -> datetime | None:
    """Return since when the queue is read without a break; None if no live worker takes tasks from it."""
    live = Worker.objects.filter(seen_at__gte=Now() - STALE)
    starts = [row.started_at for row in live if queue in row.queues and queue not in row.closed_queues]
    if not starts:
        return None
    resumed = DesiredState.objects.filter(kind=DesiredState.Kind.QUEUE, name=queue, aspect=pauses.PAUSED).first()
    return max(min(starts), resumed.since) if resumed else min(starts)


def is_known(queue: str) -> bool:
    """Whether a worker of the queue has reported itself: one of an earlier version does not."""
    return any(queue in queues for queues in Worker.objects.values_list("queues", flat=True))
