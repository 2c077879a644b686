"""Picks which waiting calls are sent: in turn between fair keys, each with a free key, permit and rate."""

import heapq
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from celery.utils.log import get_logger
from django.db import connection, transaction

from ami.admission import lanes, leases, rates, shares
from ami.admission.calls import delete
from ami.admission.lanes import Candidate, Cursor, Lane, Lanes
from ami.admission.models import Call, DispatcherLease, Outcome, Run
from ami.admission.permits import PermitBook
from ami.admission.policies import Policy, Scope, policy_of

logger = get_logger(__name__)

#: Most calls in one transaction: a statement of the dispatcher's connection has a second.
BATCH = 200
#: One transaction reads lanes for so long while none of their calls can be sent.
READ_SECONDS = 0.25
#: A message that the broker has not confirmed by then is published again.
UNCONFIRMED_SECONDS = 5.0
#: What a run that has not ended yet counts for its key; its seconds replace it.
EXPECTED_SECONDS = 1.0


class LeaseLost(Exception):
    """Another process dispatches the queue."""


@dataclass(frozen=True)
class Outgoing:
    """A call to be published for a run."""

    run: str
    call: Call


@dataclass
class _Turn:
    """What one transaction knows and has picked so far."""

    queue: str
    room: int
    policies: Mapping[str, Policy]
    lanes: Lanes
    virtual: float
    now: float
    active: Mapping[str, int]
    weights: Mapping[str, int]
    permits: PermitBook
    picked: list[Run] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    arrivals: dict[str, float] = field(default_factory=dict)


def pick(
    policies: Mapping[str, Policy],
    queue: str,
    holder: str,
    window: int,
    weights: Mapping[str, int] | None = None,
    disabled_jobs: Collection[str] = (),
    cursor: Cursor | None = None,
) -> list[Outgoing]:
    """Pick what fits into the window of a queue, in one transaction; at most `BATCH` calls.

    ``policies`` are those of the tasks whose calls may be sent now, by name; ``weights`` are those of fair keys. Calls
    of ``disabled_jobs`` wait. ``cursor`` is where the last call of this function ended: it reads lanes from there on.

    Raises:
        LeaseLost: nothing was picked.
    """
    with transaction.atomic():
        lease = leases.renew(queue, holder)
        if lease is None:
            raise LeaseLost(queue)
        _forget(policies, queue)
        room = min(BATCH, window - sum(lease.runs.values()))
        if room <= 0:
            return []
        found = Lanes(queue, policies, disabled_jobs)
        book = PermitBook(queue, policies, lease.now)
        turn = _Turn(queue, room, policies, found, lease.virtual, lease.now, lease.runs, weights or {}, book)
        _read(turn, cursor or Cursor())
        book.write()
        outgoing = _written(turn)
        if turn.virtual != lease.virtual:
            DispatcherLease.objects.filter(queue=queue).update(virtual=turn.virtual)
        return outgoing


def _forget(policies: Mapping[str, Policy], queue: str) -> None:
    """Delete calls that have expired, were merged into a later one, or came too soon after their key's last run."""
    fields = {"queue": queue}
    if lapsed := delete(lanes.expired(queue), Outcome.Why.EXPIRED):
        logger.info("Calls expired before they were sent: %d", lapsed, extra=fields)
    if merged := lanes.make_ready(queue, [name for name, policy in policies.items() if policy.debounces]):
        logger.info("Calls merged into a later one: %d", merged, extra=fields)
    dropping = [name for name, policy in policies.items() if _drops_recent(policy)]
    if dropping and (dropped := delete(lanes.of_recent_keys(queue, dropping), Outcome.Why.RAN_LATELY)):
        logger.info("Calls dropped, one ran lately: %d", dropped, extra=fields)


def _drops_recent(policy: Policy) -> bool:
    return policy.unique is not None and policy.unique.drops and policy.unique.until == Scope.RECENTLY


def staged_tasks(app: Any) -> dict[str, Policy]:
    """Return how the calls of each task go out: by its policy, or as they are where it has none (any more)."""
    return {name: policy_of(task) or Policy(outbox=True) for name, task in app.tasks.items()}


def _read(turn: _Turn, cursor: Cursor) -> None:
    """Read lanes until something is picked, all of them were seen, or the time is over."""
    ends = time.monotonic() + READ_SECONDS
    while True:
        _choose(turn, turn.lanes.read(cursor))
        if turn.picked or not cursor.after or time.monotonic() >= ends:
            return


def _choose(turn: _Turn, found: list[Lane]) -> None:
    """Take calls from the lane whose fair key has used least, one at a time, until the room is filled.

    Those of the highest priority are first.
    """
    _look_up(turn, found)
    used = _used(turn, found)
    calls = {lane.name: _LaneCalls(turn, lane) for lane in found}
    waiting = [(-lane.priority, used[lane.fair_key], lane.first.pk, lane) for lane in found]
    heapq.heapify(waiting)
    while waiting and len(turn.picked) < turn.room:
        urgency, share, head, lane = heapq.heappop(waiting)
        fair_key = lane.fair_key
        if share < used[fair_key]:  # Another lane of the same key was picked from meanwhile.
            heapq.heappush(waiting, (urgency, used[fair_key], head, lane))
            continue
        call = calls[lane.name].take()
        if call is None or not _admit(turn, lane, call):
            continue  # Permit and rate are those of the whole lane.
        if fair_key:
            used[fair_key] += EXPECTED_SECONDS / _weight(turn, fair_key)
        heapq.heappush(waiting, (urgency, used[fair_key], call.pk, lane))


class _LaneCalls:
    """The calls of a lane that may be sent, in their order: the first one is known, others are read when asked for."""

    def __init__(self, turn: _Turn, lane: Lane) -> None:
        self._turn, self._lane = turn, lane
        self._known, self._last, self._has_more = [lane.first], lane.first.pk, lane.has_more

    def take(self) -> Candidate | None:
        """Return the next one whose key was not picked in this turn; None if there is none."""
        turn = self._turn
        while True:
            while self._known:
                call = self._known.pop()
                if call.key is None or call.key not in turn.keys:
                    return call
            if not self._has_more:
                return None
            most = turn.room - len(turn.picked)
            found = turn.lanes.following(self._lane.name, self._last, turn.keys, most)
            self._known, self._has_more = found[::-1], len(found) == most
            self._last = found[-1].pk if found else self._last


def _look_up(turn: _Turn, found: list[Lane]) -> None:
    """Read the permits and rates of all lanes at once; one statement each, two for permits that are reserved."""
    policies = turn.policies
    turn.permits.look_up(lane.permit_key for lane in found if lane.permit_key and policies[lane.first.task].permits)
    if keys := {lane.rate_key for lane in found if lane.rate_key and policies[lane.first.task].rate}:
        turn.arrivals |= rates.arrivals(keys)


def _used(turn: _Turn, found: list[Lane]) -> dict[str, float]:
    """Return the work of each key with what its active runs are expected to need; an idle key has saved nothing up."""
    if not any(lane.fair_key for lane in found):
        return defaultdict(float)
    used = {lane.fair_key: max(lane.used or 0.0, turn.virtual) for lane in found}
    turn.virtual = min(used.values())
    return {
        key: value + turn.active.get(key, 0) * EXPECTED_SECONDS / _weight(turn, key) if key else value
        for key, value in used.items()
    }


def _weight(turn: _Turn, fair_key: str) -> int:
    return max(1, turn.weights.get(fair_key, 1))


def _admit(turn: _Turn, lane: Lane, call: Candidate) -> bool:
    """Note a run for the call if a permit is free and its rate is due."""
    policy = turn.policies[call.task]
    number = turn.permits.free(lane.permit_key, call, policy.permits)
    if number == 0:
        return False
    if policy.rate is not None and lane.rate_key:
        arrival = rates.take(lane.rate_key, policy.rate, turn.arrivals.get(lane.rate_key), turn.now)
        if arrival is None:
            return False
        turn.arrivals[lane.rate_key] = arrival
    if call.key is not None:
        turn.keys.add(call.key)
    if number is not None:
        turn.permits.take(lane.permit_key, call, number)
    turn.picked.append(_run(turn, lane, call, number))
    return True


def _run(turn: _Turn, lane: Lane, call: Candidate, number: int | None) -> Run:
    now = datetime.fromtimestamp(turn.now, UTC)  # Values cost less than expressions for each row.
    return Run(
        pk=uuid4().hex,
        call=call.pk,
        task=call.task,
        queue=turn.queue,
        key=call.key,
        permit_key=lane.permit_key if number else None,
        permit_number=number,
        permit_cost=call.permit_cost,
        fair_key=lane.fair_key,
        weight=_weight(turn, lane.fair_key),
        sent_at=now,
        send_again_at=now + timedelta(seconds=UNCONFIRMED_SECONDS),
    )


_INSERT = "INSERT INTO {table} ({columns}) VALUES {rows} ON CONFLICT DO NOTHING RETURNING id"
_ASSIGN = """
UPDATE {table} SET run = given.column2, starts = starts + 1 FROM (VALUES {rows}) AS given
WHERE {table}.id = given.column1 AND {table}.run IS NULL RETURNING {columns}
"""


def _written(turn: _Turn) -> list[Outgoing]:
    """Insert the runs, and name them in their calls; three statements.

    A run whose key or permit another queue's dispatcher has taken meanwhile is left out.
    """
    there = _inserted(turn.picked) if turn.picked else set()
    runs = {run.call: run.pk for run in turn.picked if run.pk in there}
    if not runs:
        return []
    rows = ", ".join(["(%s, %s)"] * len(runs))
    columns = ", ".join(each.column for each in Call._meta.concrete_fields)
    statement = _ASSIGN.format(table=Call._meta.db_table, columns=columns, rows=rows)
    calls = {call.pk: call for call in Call.objects.raw(statement, [each for item in runs.items() for each in item])}
    outgoing = [Outgoing(run, calls[pk]) for pk, run in runs.items() if pk in calls]
    if fair_keys := {each.call.fair_key for each in outgoing} - {""}:
        shares.begin(turn.queue, fair_keys, turn.virtual)
    return outgoing


def _inserted(runs: list[Run]) -> set[str]:
    """Insert runs; return the ids of those that took their key and permit."""
    fields = Run._meta.concrete_fields
    columns, row = ", ".join(each.column for each in fields), f"({', '.join(['%s'] * len(fields))})"
    statement = _INSERT.format(table=Run._meta.db_table, columns=columns, rows=", ".join([row] * len(runs)))
    values = [each.get_db_prep_save(getattr(run, each.attname), connection) for run in runs for each in fields]
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return {pk for (pk,) in cursor.fetchall()}
