"""Whether the last tick of an entry still waits or runs, so that beat sends no other one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from django.conf import settings
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from ami.celery.origin import BEAT
from ami.celery.tick_claims import ALL
from ami.queues import pauses
from ami.queues.confirmations import STALE
from ami.queues.models import DesiredState, TickClaim, Worker
from ami.topology.topology import Topology

#: An entry without ``expires``, as users make them: its task has been received after this time, where it is read.
NO_EXPIRES_SECONDS = 3600


@dataclass(frozen=True)
class Readers:
    """Who reads which queue, at one time: every worker with whether it is live, and the pauses by queue."""

    workers: tuple[tuple[Worker, bool], ...]
    pauses: Mapping[str, DesiredState]

    @classmethod
    def read(cls) -> Self:
        """Return them; two statements, one where no worker has ever reported itself: there the pauses do not count."""
        rows: Any = list(Worker.objects.annotate(now=Now()))
        wishes = DesiredState.objects.filter(kind=DesiredState.Kind.QUEUE, aspect=pauses.PAUSED)
        paused = {row.name: row for row in wishes} if rows else {}
        return cls(tuple((row, row.seen_at >= row.now - STALE) for row in rows), paused)

    def why_withheld(self, claim: TickClaim) -> str:
        """Return why no tick of the claim's entry is sent now, as a sentence; empty if one is.

        A tick has ended when its task has, when it was revoked or purged, and at the latest after its ``expires`` plus
        the hard time limit; but that time runs only while its queue is read, or an unread queue would fill up. Where no
        worker of the queue ever reported itself, there are no ends to wait for.
        """
        if claim.claimed_at is None or claim.ended_at or not claim.is_sent or claim.misfire == ALL:
            return ""
        topology: Topology = settings.ANTENNA_TOPOLOGY
        row = topology.workload(topology.place(claim.entry.task, BEAT).queue)
        if not claim.ends and not any(row.queue in worker.queues for worker, _ in self.workers):
            return ""
        if self._is_paused(row.queue):
            return f"{row.queue} is paused, and the last tick waits there or runs"
        since = self._read_since(row.queue)
        if since is None:
            return f"no worker reads {row.queue}, where the last tick waits"
        seconds = (claim.entry.expire_seconds or NO_EXPIRES_SECONDS) + row.hard_time_limit_seconds
        is_late = timezone.now() - max(since, claim.claimed_at) > timedelta(seconds=seconds)
        return "" if is_late else "the last tick still waits or runs"

    def _is_paused(self, queue: str) -> bool:
        wish = self.pauses.get(queue)
        return bool(wish and wish.value and (wish.until is None or wish.until > timezone.now()))

    def _read_since(self, queue: str) -> datetime | None:
        """Return since when the queue is read without a break; None if no live worker takes tasks from it."""
        live = [worker for worker, is_live in self.workers if is_live]
        starts = [row.started_at for row in live if queue in row.queues and queue not in row.closed_queues]
        if not starts:
            return None
        resumed = self.pauses.get(queue)
        return max(min(starts), resumed.since) if resumed else min(starts)


def why_withheld(claims: QuerySet[TickClaim]) -> str:
    """Return why no tick is sent after the only one of ``claims``, as a sentence; empty if one is."""
    claim = claims.filter(ended_at=None, is_sent=True).select_related("entry").first()
    return Readers.read().why_withheld(claim) if claim else ""


def withheld(claims: Iterable[TickClaim]) -> dict[int, str]:
    """Return why no tick is sent of the entries of these claims, by entry; two statements, none without claims."""
    asked = list(claims)
    readers = Readers.read() if asked else None
    found = {claim.pk: readers.why_withheld(claim) for claim in asked} if readers else {}
    return {entry: why for entry, why in found.items() if why}
