"""Picks which waiting calls are sent: in turn between fair keys, each with a free key, permit and rate."""

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from celery.utils.log import get_logger
from django.db import connection, transaction
from django.db.models import Count

from ami.admission import lanes, leases, rates
from ami.admission.calls import delete
from ami.admission.models import Call, DispatcherLease, Outcome, Run, Share
from ami.admission.policies import Permits, Policy, Scope, policy_of

logger = get_logger(__name__)

#: Most calls in one transaction: a statement of the dispatcher's connection has a second.
BATCH = 200
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
class _Held:
    """The permits of one key that runs hold: their numbers, one for each run, and what they cost together.

    ``is_full``: a call found too few left. No other one is picked past it, or it would wait for ever.
    """

    numbers: set[int] = field(default_factory=set)
    cost: int = 0
    is_full: bool = False


@dataclass
class _Turn:
    """What one transaction has picked so far."""

    queue: str
    room: int
    policies: Mapping[str, Policy]
    virtual: float
    now: float
    weights: Mapping[str, int]
    disabled_jobs: Collection[str]
    picked: list[tuple[Run, Call]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    permits: dict[str, "_Held"] = field(default_factory=dict)


def pick(
    policies: Mapping[str, Policy],
    queue: str,
    holder: str,
    window: int,
    weights: Mapping[str, int] | None = None,
    disabled_jobs: Collection[str] = (),
) -> list[Outgoing]:
    """Pick what fits into the window of a queue, in one transaction; at most `BATCH` calls.

    ``policies`` are those of the tasks whose calls may be sent now, by name; ``weights`` are those of fair keys. Calls
    of ``disabled_jobs`` wait.

    Raises:
        LeaseLost: nothing was picked.
    """
    with transaction.atomic():
        lease = leases.renew(queue, holder)
        if lease is None:
            raise LeaseLost(queue)
        _forget(policies, queue)
        room = min(BATCH, window - Run.objects.filter(queue=queue).count())
        if room <= 0:
            return []
        turn = _Turn(queue, room, policies, lease.virtual, lease.now, weights or {}, disabled_jobs)
        _choose(turn)
        return _written(turn)


def _forget(policies: Mapping[str, Policy], queue: str) -> None:
    """Delete calls that have expired, and those that came too soon after their key's last run."""
    if lapsed := delete(lanes.expired(queue), Outcome.Why.EXPIRED):
        logger.info("Calls expired before they were sent: %d", lapsed, extra={"queue": queue})
    dropping = [name for name, policy in policies.items() if _drops_recent(policy)]
    if dropping and (dropped := delete(lanes.of_recent_keys(queue, dropping), Outcome.Why.RAN_LATELY)):
        logger.info("Calls dropped, one ran lately: %d", dropped, extra={"queue": queue})


def _drops_recent(policy: Policy) -> bool:
    return policy.unique is not None and policy.unique.drops and policy.unique.until == Scope.RECENTLY


def staged_tasks(app: Any) -> dict[str, Policy]:
    """Return how the calls of each task go out: by its policy, or as they are where it has none (any more)."""
    return {name: policy_of(task) or Policy(outbox=True) for name, task in app.tasks.items()}


def _choose(turn: _Turn) -> None:
    """Take calls from the lane whose fair key has used least, one at a time, until the room is filled.

    Those of the highest priority are first.
    """
    found = lanes.waiting(turn.queue)
    used = _used(turn, {lane.fair_key for lane in found})
    waiting = [(-lane.priority, used[lane.fair_key], lane.head, lane) for lane in found]
    heapq.heapify(waiting)
    ordered = [name for name, policy in turn.policies.items() if policy.in_order_by]
    held = lanes.held_keys(turn.queue, ordered) if waiting else set()
    open_: dict[str, Iterator[Call]] = {}
    while waiting and len(turn.picked) < turn.room:
        urgency, share, head, lane = heapq.heappop(waiting)
        fair_key = lane.fair_key
        if share < used[fair_key]:  # Another lane of the same key was picked from meanwhile.
            heapq.heappush(waiting, (urgency, used[fair_key], head, lane))
            continue
        if lane.name not in open_:
            eligible = lanes.eligible(turn.queue, lane.name, turn.policies, held, turn.disabled_jobs)
            open_[lane.name] = iter(eligible[: turn.room])
        call = next((each for each in open_[lane.name] if _is_free(turn, each)), None)
        if call is None or not _admit(turn, call):
            continue  # Permit and rate are those of the whole lane.
        if fair_key:
            used[fair_key] += EXPECTED_SECONDS / _weight(turn, fair_key)
        heapq.heappush(waiting, (urgency, used[fair_key], call.pk, lane))
    _leave_out_held(turn)


def _leave_out_held(turn: _Turn) -> None:
    """Leave out calls of keys of which a run has ended for a retry since the held keys were read.

    Each statement sees what was committed before it: the held keys were read while that run was active, the calls when
    it had ended. No run of a key that was picked is left that could end from here on.
    """
    if turn.keys and (held := lanes.retried(turn.keys)):
        turn.picked = [(run, call) for run, call in turn.picked if call.key not in held]


def _used(turn: _Turn, fair_keys: set[str]) -> dict[str, float]:
    """Return the work of each key with what its active runs are expected to need; an idle key has saved nothing up."""
    if fair_keys <= {""}:
        return {"": 0.0}
    rows = Share.objects.filter(queue=turn.queue, fair_key__in=fair_keys)
    known = dict(rows.values_list("fair_key", "used"))
    used = {key: max(known.get(key, 0.0), turn.virtual) for key in fair_keys}
    turn.virtual = min(used.values())
    active = Run.objects.filter(queue=turn.queue, fair_key__in=fair_keys).values_list("fair_key")
    for key, count in active.annotate(count=Count("pk")):
        used[key] += count * EXPECTED_SECONDS / _weight(turn, key)
    return used


def _weight(turn: _Turn, fair_key: str) -> int:
    return max(1, turn.weights.get(fair_key, 1))


def _is_free(turn: _Turn, call: Call) -> bool:
    """Whether this turn has sent no other call of its key, and, in order, no other one is before it."""
    if call.key is None:
        return True
    return call.key not in turn.keys and (not turn.policies[call.task].in_order_by or lanes.is_first(call))


def _admit(turn: _Turn, call: Call) -> bool:
    """Note a run for the call if a permit is free and its rate is due."""
    policy = turn.policies[call.task]
    number = _permit(turn, call, policy)
    if number == 0:
        return False
    if policy.rate is not None and call.rate_key and not rates.take(call.rate_key, policy.rate, turn.now):
        return False
    if call.key is not None:
        turn.keys.add(call.key)
    if number is not None:
        held = turn.permits[call.permit_key]
        held.numbers.add(number)
        held.cost += call.permit_cost
    turn.picked.append((_run(turn, call, number), call))
    return True


def _permit(turn: _Turn, call: Call, policy: Policy) -> int | None:
    """Return the smallest free number of the call's permits, 0 if too few are left, None if it needs none."""
    if policy.permits is None or not call.permit_key:
        return None
    if call.permit_key not in turn.permits:
        turn.permits[call.permit_key] = _held(turn, call, policy.permits)
    held, most = turn.permits[call.permit_key], policy.permits.most
    # More than ``most`` were allowed when they were sent.
    if held.is_full or held.cost + min(call.permit_cost, most) > most or len(held.numbers) >= most:
        held.is_full = True
        return 0
    return next(number for number in range(1, most + 1) if number not in held.numbers)


def _held(turn: _Turn, call: Call, permits: Permits) -> _Held:
    """Return which permits of a call's key are held.

    The constraint of `Run` keeps two queues' dispatchers from one number. What runs cost together it does not know: of
    tasks that cost more than one, only the dispatcher picks that has the key's lock.
    """
    shared = permits.name or call.task
    of = ((policy.permits, name) for name, policy in turn.policies.items() if policy.permits is not None)
    if any(each.cost != 1 for each, name in of if (each.name or name) == shared) and not _locked(call.permit_key):
        return _Held(is_full=True)
    rows = list(Run.objects.filter(permit_key=call.permit_key).values_list("permit_number", "permit_cost"))
    return _Held({number for number, _ in rows if number is not None}, sum(cost for _, cost in rows))


def _locked(permit_key: str) -> bool:
    """Lock a key's permits until the end of the transaction; False while another dispatcher has them.

    SQLite has one writer.
    """
    if connection.vendor != "postgresql":
        return True
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [f"permits {permit_key}"])
        return bool(cursor.fetchone()[0])


def _run(turn: _Turn, call: Call, number: int | None) -> Run:
    now = datetime.fromtimestamp(turn.now, UTC)  # Values cost less than expressions for each row.
    return Run(
        pk=uuid4().hex,
        call=call.pk,
        task=call.task,
        queue=call.queue,
        key=call.key,
        permit_key=call.permit_key if number else None,
        permit_number=number,
        permit_cost=call.permit_cost,
        fair_key=call.fair_key,
        weight=_weight(turn, call.fair_key),
        sent_at=now,
        send_again_at=now + timedelta(seconds=UNCONFIRMED_SECONDS),
    )


def _written(turn: _Turn) -> list[Outgoing]:
    """Insert the runs; one whose key or permit another queue's dispatcher has taken meanwhile is left out."""
    if not turn.picked:
        return []
    Run.objects.bulk_create([run for run, _ in turn.picked], ignore_conflicts=True)
    ids = [run.pk for run, _ in turn.picked]
    there = set(Run.objects.filter(pk__in=ids).values_list("pk", flat=True))
    picked = [(run, call) for run, call in turn.picked if run.pk in there]
    if not picked:
        return []
    _assign(picked)
    _write_shares(turn, {call.fair_key for _, call in picked if call.fair_key})
    for _, call in picked:
        call.starts += 1
    return [Outgoing(run.pk, call) for run, call in picked]


_ASSIGN = """
UPDATE {table} SET run = given.column2, starts = starts + 1 FROM (VALUES {rows}) AS given
WHERE {table}.id = given.column1 AND {table}.run IS NULL
"""


def _assign(picked: list[tuple[Run, Call]]) -> None:
    """Name in each call the run that it was sent for; one statement, by their numbers."""
    statement = _ASSIGN.format(table=Call._meta.db_table, rows=", ".join(["(%s, %s)"] * len(picked)))
    with connection.cursor() as cursor:
        cursor.execute(statement, [each for run, call in picked for each in (call.pk, run.pk)])


def _write_shares(turn: _Turn, fair_keys: set[str]) -> None:
    """Let the work of the keys picked begin at the queue's virtual time."""
    if not fair_keys:
        return
    made = [Share(queue=turn.queue, fair_key=key, used=turn.virtual) for key in fair_keys]
    Share.objects.bulk_create(made, ignore_conflicts=True)
    Share.objects.filter(queue=turn.queue, fair_key__in=fair_keys, used__lt=turn.virtual).update(used=turn.virtual)
    DispatcherLease.objects.filter(queue=turn.queue).update(virtual=turn.virtual)
