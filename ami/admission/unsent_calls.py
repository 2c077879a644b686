"""Calls that are not sent: the broker has not confirmed them, or no process dispatches their queue."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import BooleanField, Count, Exists, Min, OuterRef, QuerySet, Value
from django.db.models.functions import Coalesce, Greatest, Now

from ami.admission import deployment, lanes
from ami.admission.models import Call, DispatcherLease, Run

#: A message is confirmed within milliseconds, and tried again every 5 s; another process takes a lease within 20 s.
LATE_SECONDS = 30.0


class Unsent(NamedTuple):
    """Calls of one queue that were sent and are not confirmed, or that are due while no process dispatches the queue.

    The first of them is so since ``first``, and ``now`` is the database's time.
    """

    queue: str
    calls: int
    is_unconfirmed: bool
    first: datetime
    now: datetime


def read() -> list[Unsent]:
    """Return what has been so for `LATE_SECONDS` by the database's clock.

    One statement; where calls are due without a dispatcher, those of `deployment` and another one.
    """
    late = Now() - timedelta(seconds=LATE_SECONDS)
    runs = Run.objects.filter(state=Run.State.SENT, confirmed_at=None, sent_at__lte=late)
    unconfirmed, due = _counted(runs, "sent_at", is_unconfirmed=True), _due(late)
    found = [Unsent(*row) for row in unconfirmed.union(_counted(due, "due_at", is_unconfirmed=False), all=True)]
    if all(each.is_unconfirmed for each in found):
        return found
    now = deployment.read()
    due = due.exclude(queue__in=now.paused_queues).exclude(task__in=now.disabled_tasks)
    if now.disabled_jobs:
        due = due.exclude(lanes.of_jobs(now.disabled_jobs))
    held_by_none = [Unsent(*row) for row in _counted(due, "due_at", is_unconfirmed=False)]
    return [each for each in found if each.is_unconfirmed] + held_by_none


def _due(late: Any) -> "QuerySet[Call]":
    """Return the calls that have been due so long, of queues without a lease that was held since."""
    held = DispatcherLease.objects.filter(queue=OuterRef("queue"), until__gt=late)
    due_at = Greatest("created_at", Coalesce("not_before", "created_at"))
    calls = Call.objects.annotate(due_at=due_at).filter(~Exists(held), due_at__lte=late, run=None, stopped_at=None)
    return calls.exclude(expires__lte=Now())


def _counted(rows: Any, since: str, *, is_unconfirmed: bool) -> Any:
    """Return what `Unsent` is made of, for each queue."""
    calls, first = Count("pk"), Min(since)
    counted = rows.order_by().values("queue").annotate(calls=calls, first=first, now=Now())
    return counted.annotate(is_unconfirmed=Value(is_unconfirmed, BooleanField())).values_list(*Unsent._fields)
