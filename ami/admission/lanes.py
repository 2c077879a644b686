"""The waiting calls of a queue, lane by lane: which lanes there are, and the calls of one that may be sent now."""

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from ami.admission import stopped
from ami.admission.calls import is_due
from ami.admission.models import Call, RecentKey, Run
from ami.celery.disabled import JOB_ARGUMENT

#: Most lanes that are looked at for one pick, those with the highest priority and the oldest calls.
MOST_LANES = 5_000

#: One look-up in an index for each lane: the first call of the next one.
_COLUMNS = "head.lane, head.id, head.fair_key, head.priority"
_FIRST = """
SELECT {columns} FROM {table} AS head WHERE head.queue = %s AND head.run IS NULL ORDER BY head.lane, head.id LIMIT 1
"""
_NEXT = {
    "postgresql": """
SELECT {columns} FROM lanes, LATERAL (
    SELECT * FROM {table} AS other WHERE other.queue = %s AND other.run IS NULL AND other.lane > lanes.lane
    ORDER BY other.lane, other.id LIMIT 1
) AS head
""",
    "sqlite": """
SELECT {columns} FROM lanes JOIN {table} AS head ON head.id = (
    SELECT other.id FROM {table} AS other WHERE other.queue = %s AND other.run IS NULL AND other.lane > lanes.lane
    ORDER BY other.lane, other.id LIMIT 1
)
""",
}
_LANES = """
WITH RECURSIVE lanes(lane, id, fair_key, priority) AS (SELECT * FROM ({first}) AS first UNION ALL {next})
SELECT lane, id, fair_key, priority FROM lanes ORDER BY priority DESC, id LIMIT %s
"""


class Lane(NamedTuple):
    """A lane with waiting calls; ``head`` is the number of the first one."""

    name: str
    head: int
    fair_key: str
    priority: int


def waiting(queue: str) -> list[Lane]:
    """Return the lanes with waiting calls: what waits behind the first one costs nothing."""
    named = {"table": Call._meta.db_table, "columns": _COLUMNS}
    statement = _LANES.format(first=_FIRST.format(**named), next=_NEXT[connection.vendor].format(**named))
    with connection.cursor() as cursor:
        cursor.execute(statement, [queue, queue, MOST_LANES])
        return [Lane(*row) for row in cursor.fetchall()]


def held_keys(queue: str, ordered: Sequence[str]) -> set[str]:
    """Return the keys of which a retry waits for its time, and those of the tasks ``ordered`` whose first call waits
    for its time or has stopped.
    """
    later = _later()
    keys = later.filter(retries__gt=0).values_list("key", flat=True)
    if ordered:
        keys = keys.union(later.filter(queue=queue, task__in=ordered).values_list("key", flat=True))
    found = {key for key in keys if key is not None}
    return found | stopped.keys(ordered) if ordered else found


def retried(keys: Collection[str]) -> set[str]:
    """Return those of the keys of which a retry waits for its time."""
    found = _later().filter(retries__gt=0, key__in=keys).values_list("key", flat=True)
    return {key for key in found if key is not None}


def _later() -> "QuerySet[Call]":
    return Call.objects.filter(run=None, not_before__gt=Now(), key__isnull=False)


def is_first(call: Call) -> bool:
    """Whether no other call of its key waits before it, in any lane or queue."""
    before = Call.objects.filter(key=call.key, run=None, pk__lt=call.pk)
    return before.values_list("pk", flat=True).order_by("pk").first() is None


def of_jobs(jobs: Iterable[str]) -> Q:
    """Return the condition that a call has one of these as its argument ``job_id``, given by name."""
    texts = (f'"{JOB_ARGUMENT}": {value}{end}' for job in jobs for value in (job, f'"{job}"') for end in ",}")
    return reduce(or_, (Q(arguments__contains=text) for text in texts), Q())


def eligible(
    queue: str, lane: str, tasks: Iterable[str], held: Iterable[str], disabled_jobs: Collection[str] = ()
) -> "QuerySet[Call]":
    """Return the calls of a lane that are due and whose key is free, in their order; of these tasks alone.

    A key is not free while a run of it is sent or active, it ran lately, or it is one of ``held``. Those are no
    part of the statement: without statistics PostgreSQL would read all calls for each call.
    """
    same = {"key": OuterRef("key")}
    found = Call.objects.filter(is_due(), queue=queue, lane=lane, run=None, task__in=tasks, stopped_at=None)
    if keys := list(held):
        found = found.exclude(key__in=keys)
    if disabled_jobs:
        found = found.exclude(of_jobs(disabled_jobs))
    return (
        found.exclude(Exists(Run.objects.filter(**same)))
        .exclude(Exists(RecentKey.objects.filter(until__gt=Now(), **same)))
        .order_by("pk")
    )


def expired(queue: str) -> "QuerySet[Call]":
    """Return the calls that came too late; one that has stopped its key was run in time."""
    return Call.objects.filter(queue=queue, run=None, expires__lte=Now(), stopped_at=None)


def of_recent_keys(queue: str, tasks: Sequence[str]) -> "QuerySet[Call]":
    """Return the waiting calls of these tasks whose key ran lately; one statement for the keys."""
    recent = list(RecentKey.objects.filter(until__gt=Now()).values_list("key", flat=True))
    return Call.objects.filter(key__in=recent, queue=queue, run=None, task__in=tasks)
