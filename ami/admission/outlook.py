"""What there is to do for a process that dispatches: one statement over the queues whose leases it holds."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Exists, OuterRef, Subquery
from django.db.models.functions import Now

from ami.admission.models import Call, DispatcherLease, Run


@dataclass(frozen=True)
class Outlook:
    """``due`` are queues with calls that may be sent by their time, ``unseen`` those with messages to be sent again.

    ``runs`` is how many are sent or running, of the queues with some.

    ``seconds`` is when the next delayed call or unseen message is due, None without one.
    """

    due: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    runs: Mapping[str, int] = field(default_factory=dict)
    seconds: float | None = None


def read(queues: Collection[str]) -> Outlook:
    """Return what is to be done for these queues."""
    of_queue = {"queue": OuterRef("queue")}
    waiting = Call.objects.filter(run=None, **of_queue)
    delayed = waiting.filter(ready=False).order_by("not_before").values("not_before")[:1]
    sent = Run.objects.filter(state=Run.State.SENT, **of_queue).order_by("send_again_at").values("send_again_at")[:1]
    active = Run.objects.filter(**of_queue).order_by().values("queue").annotate(count=Count("pk"))
    rows: Any = DispatcherLease.objects.filter(queue__in=queues).annotate(
        now=Now(),
        is_waiting=Exists(waiting.filter(ready=True)),
        delayed_until=delayed,
        again_at=sent,
        runs=Subquery(active.values("count")),
    )
    due, unseen, seconds, runs = [], [], [], {}
    for row in rows:
        left = (row.delayed_until - row.now).total_seconds() if row.delayed_until else None
        again = (row.again_at - row.now).total_seconds() if row.again_at else None
        if row.is_waiting or (left is not None and left <= 0):
            due.append(row.queue)
        if again is not None and again <= 0:
            unseen.append(row.queue)
        seconds += [each for each in (left, again) if each is not None and each > 0]
        if row.runs:
            runs[row.queue] = row.runs
    return Outlook(tuple(sorted(due)), tuple(sorted(unseen)), runs, min(seconds, default=None))
