"""The waiting calls of a queue, lane by lane: which lanes there are, and the calls of one that may be sent now."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from ami.admission.calls import delete, is_due
from ami.admission.models import Call, Outcome, RecentKey, Run, Share
from ami.admission.policies import Policy
from ami.celery import database_times
from ami.celery.disabled import JOB_ARGUMENT

#: Lanes of one statement.
MOST_LANES = 1_000
#: Most calls that become ready in one statement.
MOST_READY = 500

_TABLES = {
    "calls": Call._meta.db_table,
    "runs": Run._meta.db_table,
    "recent": RecentKey._meta.db_table,
    "shares": Share._meta.db_table,
}

#: A call is eligible if its task may be sent and its key is free: no run of it is sent or active, it did not run
#: lately, and none of its retries waits. In order it is the first of its key, wherever the others are; a call that
#: waits until no other one comes is the last. All of it is one snapshot: a run that ends for a retry is seen either
#: as a run or as a retry.
_ELIGIBLE = """
waits.queue = %s AND waits.run IS NULL AND waits.ready AND waits.stopped_at IS NULL AND waits.task IN ({tasks})
AND (waits.key IS NULL OR (
    NOT EXISTS (SELECT 1 FROM {runs} AS active WHERE active.key = waits.key)
    AND NOT EXISTS (SELECT 1 FROM {recent} AS recent WHERE recent.key = waits.key AND recent.until > {now})
    AND NOT EXISTS (
        SELECT 1 FROM {calls} AS retried
        WHERE retried.key = waits.key AND retried.run IS NULL AND retried.retries > 0 AND NOT retried.ready
    ){beside}
))"""
_NONE_BESIDE = """
    AND (waits.task NOT IN ({tasks}) OR NOT EXISTS (
        SELECT 1 FROM {calls} AS other WHERE other.key = waits.key AND other.run IS NULL AND other.id {sign} waits.id
    ))"""
_CANDIDATE = "waits.id, waits.task, waits.key, waits.permit_cost"

#: One look-up in an index for each lane: the first call of the next one. It ends behind the last one that is urgent
#: enough, since lanes begin with their urgency.
_LANES = """
WITH RECURSIVE lanes AS (
    SELECT * FROM (
        SELECT {head}, 1 AS number FROM {calls} AS head
        WHERE head.queue = %s AND head.run IS NULL AND head.ready AND head.lane {after} %s
        ORDER BY head.lane, head.id LIMIT 1
    ) AS first
    UNION ALL
    SELECT {head}, lanes.number + 1 FROM lanes {next} WHERE lanes.number < %s AND lanes.priority >= %s
)
SELECT lanes.lane, lanes.fair_key, lanes.priority, lanes.permit_key, lanes.rate_key, share.used, {candidate}, EXISTS (
    SELECT 1 FROM {calls} AS behind WHERE behind.queue = %s AND behind.run IS NULL AND behind.ready
    AND behind.lane = lanes.lane AND behind.id > waits.id
)
FROM lanes LEFT JOIN {shares} AS share ON share.queue = %s AND share.fair_key = lanes.fair_key
{first}
ORDER BY lanes.number
"""
_HEAD = "head.lane, head.fair_key, head.priority, head.permit_key, head.rate_key"
_NEXT = (
    "SELECT {columns} FROM {calls} AS other WHERE other.queue = %s AND other.run IS NULL AND other.ready "
    "AND other.lane > lanes.lane ORDER BY other.lane, other.id LIMIT 1"
)
_FIRST = "SELECT {columns} FROM {calls} AS waits WHERE waits.lane = lanes.lane AND {eligible} ORDER BY waits.id LIMIT 1"
#: SQLite has no LATERAL.
_JOINS = {
    "postgresql": (
        f"CROSS JOIN LATERAL ({_NEXT.replace('{columns}', '*')}) AS head",
        f"LEFT JOIN LATERAL ({_FIRST.replace('{columns}', '{candidate}')}) AS waits ON TRUE",
    ),
    "sqlite": (
        f"JOIN {{calls}} AS head ON head.id = ({_NEXT.replace('{columns}', 'other.id')})",
        f"LEFT JOIN {{calls}} AS waits ON waits.id = ({_FIRST.replace('{columns}', 'waits.id')})",
    ),
}
_FOLLOWING = (
    "SELECT {candidate} FROM {calls} AS waits WHERE waits.lane = %s AND waits.id > %s AND {eligible} "
    "{unpicked} ORDER BY waits.id LIMIT %s"
)


class Candidate(NamedTuple):
    """What admission reads of a call that may be sent; ``pk`` is its number."""

    pk: int
    task: str
    key: str | None
    permit_cost: int


class Lane(NamedTuple):
    """A lane with its first call that may be sent; ``has_more`` says whether others are behind it.

    ``used`` is the work of its fair key, None where that has no row.
    """

    name: str
    fair_key: str
    priority: int
    permit_key: str
    rate_key: str
    used: float | None
    first: Candidate
    has_more: bool


@dataclass
class Cursor:
    """Where the last statement over the lanes ended; empty: it has seen all of them."""

    after: str = ""


class Lanes:
    """The lanes of one queue, for one turn of its dispatcher.

    ``policies`` are those of the tasks whose calls may be sent. Calls of ``disabled_jobs`` may not.
    """

    def __init__(self, queue: str, policies: Mapping[str, Policy], disabled_jobs: Collection[str] = ()) -> None:
        self._queue, self._has_tasks = queue, bool(policies)
        ordered = [name for name, policy in policies.items() if policy.in_order_by]
        debounced = [name for name, policy in policies.items() if policy.debounces]
        beside, names = "", list[str]()
        for tasks, sign in ((ordered, "<"), (debounced, ">")):
            if tasks:
                beside += _NONE_BESIDE.format(tasks=_places(tasks), sign=sign, **_TABLES)
                names += tasks
        jobs, texts = _not_of_jobs(disabled_jobs)
        now = database_times.now_beside_parameters()
        self._eligible = _ELIGIBLE.format(tasks=_places(policies), now=now, beside=beside, **_TABLES) + jobs
        self._values = [queue, *policies, *names, *texts]

    def read(self, cursor: Cursor) -> list[Lane]:
        """Return those of the next `MOST_LANES` lanes that have a call to be sent, and move the cursor.

        One statement. Where there are more lanes, it takes one more for the urgent ones, which are never passed over.
        """
        if not self._has_tasks:
            return []
        rows = self._rows("", least_priority=1) if cursor.after else {}
        found = self._rows(cursor.after)
        cursor.after = list(found)[-1] if len(found) == MOST_LANES else ""
        rows |= found
        return [Lane(*row[:6], Candidate(*row[6:10]), bool(row[10])) for row in rows.values() if row[6] is not None]

    def _rows(self, after: str, least_priority: int = 0) -> dict[str, Any]:
        """Return what the statement finds behind a lane, by the lanes' names."""
        named = {"head": _HEAD, "candidate": _CANDIDATE, "eligible": self._eligible, **_TABLES}
        following, first = (each.format(**named) for each in _JOINS[connection.vendor])
        statement = _LANES.format(**named, after=">" if after else ">=", next=following, first=first)
        queue = self._queue
        with connection.cursor() as cursor:
            cursor.execute(statement, [queue, after, queue, MOST_LANES, least_priority, queue, queue, *self._values])
            return {row[0]: row for row in cursor.fetchall() if row[2] >= least_priority}

    def following(self, lane: str, after: int, keys: Collection[str], most: int) -> list[Candidate]:
        """Return the next calls of a lane that may be sent, without those of the given keys; one statement."""
        unpicked = f"AND (waits.key IS NULL OR waits.key NOT IN ({_places(keys)}))" if keys else ""
        statement = _FOLLOWING.format(candidate=_CANDIDATE, eligible=self._eligible, unpicked=unpicked, **_TABLES)
        with connection.cursor() as cursor:
            cursor.execute(statement, [lane, after, *self._values, *keys, most])
            return [Candidate(*row) for row in cursor.fetchall()]


def make_ready(queue: str, debounced: Sequence[str]) -> int:
    """Let the calls of a queue whose time has come be sent; return how many others of these tasks were merged.

    A call of a ``debounced`` task is merged into a later one of its key that waits. One statement, one more for those.
    """
    come = Call.objects.filter(is_due(), queue=queue, run=None)
    merged = 0
    if debounced:
        later = Call.objects.filter(key=OuterRef("key"), run=None, pk__gt=OuterRef("pk"))
        merged = delete(come.filter(Exists(later), task__in=debounced, retries=0), Outcome.Why.MERGED)
    some = come.filter(ready=False).order_by("not_before").values("pk")[:MOST_READY]
    Call.objects.filter(pk__in=some).update(ready=True)
    return merged


def of_jobs(jobs: Iterable[str]) -> Q:
    """Return the condition that a call has one of these as its argument ``job_id``, given by name."""
    return reduce(or_, (Q(arguments__contains=text) for text in _job_texts(jobs)), Q())


def _job_texts(jobs: Iterable[str]) -> list[str]:
    return [f'"{JOB_ARGUMENT}": {value}{end}' for job in jobs for value in (job, f'"{job}"') for end in ",}"]


def _not_of_jobs(jobs: Iterable[str]) -> tuple[str, list[str]]:
    """Return the condition that a call is of none of these jobs, and its values."""
    texts, place = _job_texts(jobs), "STRPOS" if connection.vendor == "postgresql" else "INSTR"
    return "".join(f" AND {place}(waits.arguments, %s) = 0" for _ in texts), texts


def _places(values: Iterable[Any]) -> str:
    return ", ".join("%s" for _ in values)


def expired(queue: str) -> "QuerySet[Call]":
    """Return the calls that came too late; one that has stopped its key was run in time."""
    return Call.objects.filter(queue=queue, run=None, expires__lte=Now(), stopped_at=None)


def of_recent_keys(queue: str, tasks: Sequence[str]) -> "QuerySet[Call]":
    """Return the waiting calls of these tasks whose key ran lately; one statement for the keys."""
    recent = list(RecentKey.objects.filter(until__gt=Now()).values_list("key", flat=True))
    return Call.objects.filter(key__in=recent, queue=queue, run=None, task__in=tasks)
