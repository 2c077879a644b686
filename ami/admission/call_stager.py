"""Appends a call of a task with a policy to the caller's transaction."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.result import AsyncResult
from celery.utils import uuid
from django.db import connection, transaction
from kombu.utils import json

from ami.admission import keys, notifier, stopped
from ami.admission.models import Call, RecentKey, Run
from ami.admission.policies import OnConflict, Policy, Scope, Unique, policy_of
from ami.celery.staged_calls import without_own

#: What Celery adds to the options of a call for the process that publishes it: a row needs none of it.
_NOT_KEPT = (
    *("add_to_parent", "args", "connection", "countdown", "eta", "expires", "kwargs", "producer", "publisher"),
    *("result_cls", "retries", "route_name", "router", "task_id", "task_type", "confirm_timeout", "reply_to"),
)
#: What a merged or dropped call cannot have: it would never be called.
_FOLLOWING = ("chain", "chord", "group_id", "link", "link_error")


HIGHEST_PRIORITY = 9


class DuplicateCall(Exception):
    """A call of the same key waits or runs; ``task_id`` is the id of that one."""

    def __init__(self, task: str, key: str, task_id: str) -> None:
        super().__init__(f"{task} waits or runs for {key} already, as {task_id}.")
        self.task_id = task_id


class CannotStage(ValueError):
    """The options of a call contradict its task's policy; the sentence names them."""


class StagedResult(AsyncResult):  # type: ignore[misc]
    """``was_duplicate`` is what was known at the call: whether another one of its key waited or ran."""

    was_duplicate = False


def stage(app: Any, task: Any, args: Any, kwargs: Any, options: dict[str, Any], due: float) -> StagedResult:
    """Append a call; ``due`` in epoch seconds, 0 for now. One statement, two for a unique task that drops or raises.

    A call whose task id is on record already adds nothing.

    Raises:
        TypeError: the task does not take the arguments; `keys.ArgumentRefused` names one that its policy reads.
        DuplicateCall: its task says so.
        CannotStage: a unique call is to be followed by callbacks.
        django.db.Error: as any statement of the caller's transaction.
    """
    if task.typing and hasattr(task, "__header__"):
        task.__header__(*(args or ()), **(kwargs or {}))
    policy = policy_of(task)
    assert policy is not None
    task_id = str(options.get("task_id") or uuid())
    kept = _kept(app, task, policy, options)
    row = _row(app, task, policy, args, kwargs, kept)
    row.task_id = task_id
    row.expires = _moment(options.get("expires"))
    row.not_before = _not_before(task, policy, row, due)
    row.ready = row.not_before is None
    known = _known(policy.unique, row) if policy.unique else None
    if known is not None and policy.unique and policy.unique.on_conflict == OnConflict.RAISE:
        raise DuplicateCall(task.name, row.key_text, known)
    _append(app, row)
    shown = known if known and policy.unique and policy.unique.on_conflict == OnConflict.DROP else task_id
    result = StagedResult(shown, app=app)
    result.was_duplicate = known is not None
    if (running := app.current_worker_task) is not None and options.get("add_to_parent", True):
        running.add_trail(result)
    return result


def adopt(task: Any, args: Any, kwargs: Any) -> None:
    """Append the running task's message, which was published without a row."""
    request, policy = task.request, policy_of(task)
    assert policy is not None
    options = {name: value for name, value in request.as_execution_options().items() if value is not None}
    options["headers"] = without_own(options.get("headers") or {})
    row = _row(task.app, task, policy, args, kwargs, _plain(options))
    row.task_id, row.retries = str(request.id), int(request.retries or 0)
    row.expires = _moment(request.expires)
    if not (policy.in_order_by and stopped.go_on(row)):
        _append(task.app, row)


def _not_before(task: Any, policy: Policy, row: Call, due: float) -> datetime | None:
    """Return when a call may be sent: one that is grouped or debounced waits for others of its key."""
    if due and (why := _runs_when(policy)):
        raise CannotStage(f"{task.name} {why}: publish it without countdown and eta.")
    if policy.group_by is not None:
        due = time.time() + policy.group_by.seconds
    if policy.unique is not None and policy.unique.after:
        return _debounced(policy.unique, row)
    return datetime.fromtimestamp(due, UTC) if due else None


def _runs_when(policy: Policy) -> str:
    """Return what says when a call runs, if it is not its caller."""
    if policy.in_order_by:
        return "runs in the order of its calls"
    if policy.group_by:
        return f"runs {policy.group_by.seconds:g} s after the first call of its group"
    if policy.unique and policy.unique.after:
        return f"runs {policy.unique.after:g} s after the last call of its key"
    return ""


def _debounced(unique: Unique, row: Call) -> datetime:
    """Return when a call may be sent unless others of its key come; it counts as made with the first of them."""
    waiting = Call.objects.filter(key=row.key, run=None, retries=0).order_by("-pk")
    now = _now()
    row.created_at = waiting.values_list("created_at", flat=True).first() or now
    due = now + timedelta(seconds=unique.after)
    return min(due, row.created_at + timedelta(seconds=unique.at_most)) if unique.at_most else due


def _row(app: Any, task: Any, policy: Policy, args: Any, kwargs: Any, options: dict[str, Any]) -> Call:
    given = keys.arguments(task, args, kwargs) if policy.names or policy.unique else {}
    text = keys.key_text(task, policy, given)
    permits, rate = policy.permits, policy.rate
    permit_key = keys.limit_key(task, permits.name, permits.per, given) if permits else ""
    rate_key = keys.limit_key(task, rate.name, rate.per, given) if rate else ""
    fair_key = keys.fair_key(task, policy, given)
    priority = 0 if policy.in_order_by else _priority(task, options)
    # Lanes begin with their urgency: the urgent ones come first in their order.
    lane = f"{HIGHEST_PRIORITY - priority}{fair_key}"
    return Call(
        task=task.name,
        queue=_queue(app, task, args, kwargs, options),
        lane=keys.shortened("|".join((lane, permit_key, rate_key)) if permit_key or rate_key else lane),
        priority=priority,
        key=keys.shortened(f"{task.name}:{text}") if text else None,
        key_text=text,
        permit_key=permit_key,
        permit_cost=keys.permit_cost(task, permits.cost, given) if permits and permit_key else 1,
        rate_key=rate_key,
        fair_key=fair_key,
        arguments=json.dumps([list(args or ()), dict(kwargs or {})]),
        options=json.dumps(options),
    )


def _priority(task: Any, options: dict[str, Any]) -> int:
    """Return the priority of a call as messages have it: 0 is normal, 9 is sent first."""
    given = options.get("priority", task.priority)
    if given is None:
        return 0
    if not isinstance(given, int) or not 0 <= given <= HIGHEST_PRIORITY:
        raise CannotStage(f"priority is {given!r}; give a number from 0 (normal) to {HIGHEST_PRIORITY}.")
    return given


def _append(app: Any, row: Call) -> None:
    """Insert one row, unless its task id is there; one statement, which needs no transaction of its own."""
    unset = {"id"} if isinstance(row.created_at, datetime) else {"id", "created_at"}
    fields = [each for each in Call._meta.concrete_fields if each.name not in unset]
    values = [each.get_db_prep_save(getattr(row, each.attname), connection) for each in fields]
    columns, places = ", ".join(each.column for each in fields), ", ".join(["%s"] * len(fields))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {Call._meta.db_table} ({columns}) VALUES ({places}) "  # noqa: S608 - names of the model
            "ON CONFLICT (task_id) DO NOTHING",
            values,
        )
    transaction.on_commit(lambda: notifier.notify(app))


def _kept(app: Any, task: Any, policy: Policy, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options to publish the call with, and the lineage that its publisher gives it."""
    if policy.merges and (followed := [name for name in _FOLLOWING if options.get(name)]):
        kind = "unique" if policy.unique else "grouped"
        raise CannotStage(
            f"{task.name} is {kind}, and its calls may be merged or dropped: publish it without {', '.join(followed)}."
        )
    kept = _plain({name: value for name, value in options.items() if name not in _NOT_KEPT and value is not None})
    if (running := app.current_worker_task) is not None:
        request = running.request
        kept.setdefault("root_id", request.root_id or request.id)
        kept.setdefault("parent_id", request.id)
    return kept


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of which a row can keep each: a queue and an exchange by name."""
    return {
        name: getattr(value, "name", value) if name in ("queue", "exchange") else value
        for name, value in options.items()
        if value not in (None, [], {}) and name not in _NOT_KEPT
    }


def _queue(app: Any, task: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> str:
    route = app.amqp.router.route(dict(options), task.name, args, kwargs, task)
    queue = route.get("queue")
    name = getattr(queue, "name", queue) or route.get("routing_key")
    return str(name or app.conf.task_default_queue)


def _moment(expires: Any) -> datetime | None:
    if expires is None:
        return None
    if isinstance(expires, (int, float)):
        return datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=expires)
    moment = datetime.fromisoformat(expires) if isinstance(expires, str) else expires
    assert isinstance(moment, datetime)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _known(unique: Unique, row: Call) -> str | None:
    """Return the id of a committed call of the same key that waits, or also runs or ran; None without one."""
    waiting = Call.objects.filter(key=row.key)
    if unique.until == Scope.UNTIL_EXECUTING:
        waiting = waiting.exclude(run__in=Run.objects.filter(task=row.task, state=Run.State.RUNNING).values("pk"))
    if (found := waiting.order_by("pk").values_list("task_id", flat=True).first()) is not None:
        return str(found)
    if unique.until == Scope.RECENTLY and RecentKey.objects.filter(key=row.key, until__gt=_now()).exists():
        return ""
    return None


def _now() -> datetime:
    return datetime.now(UTC)
