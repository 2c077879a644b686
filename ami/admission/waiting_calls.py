"""Who waits for what: the calls that are staged, by lane, for operators and programs."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Min, Q, Sum, Value
from django.db.models.functions import Coalesce

from ami.admission import deployment, lanes
from ami.admission.calls import is_due
from ami.admission.deployment import Deployment
from ami.admission.models import Call, Run
from ami.admission.policies import Policy, policy_of
from ami.celery.shown_time import shown_time


@dataclass(frozen=True)
class Staged:
    """The calls of one task and one lane.

    ``waiting`` are not on the broker, ``later`` those of them that are not due yet, ``disabled`` those of disabled
    jobs, ``stopped`` those that failed and hold up the calls of their key; ``sent`` and ``running`` are runs. ``why``
    says what the first waiting one waits for; empty where none does.
    """

    queue: str
    task: str
    fair_key: str
    permit_key: str
    rate_key: str
    waiting: int
    later: int
    disabled: int
    stopped: int
    sent: int
    running: int
    oldest_at: datetime | None
    why: str


@dataclass(frozen=True)
class Waiting:
    """The calls of one queue that wait as rows: those that may be sent by now, and those that are due later.

    ``oldest_at`` is since when the first one that may be sent waits.
    """

    due: int = 0
    later: int = 0
    oldest_at: datetime | None = None


def by_queue() -> dict[str, Waiting]:
    """Return what waits as rows in each queue that has some; one statement."""
    since = Min(Coalesce("not_before", "created_at"), filter=is_due())
    rows = Call.objects.filter(run=None).values_list("queue").order_by()
    counts = rows.annotate(due=Count("pk", filter=is_due()), later=Count("pk", filter=~is_due()), since=since)
    return {queue: Waiting(*waiting) for queue, *waiting in counts}


@dataclass(frozen=True)
class WaitingCall:
    """Where one call is, in a sentence."""

    task: str
    detail: str


def of_task(task_id: str) -> WaitingCall | None:
    """Return where the call with this id is; None where there is no row. Two statements at most."""
    call = Call.objects.filter(task_id=task_id).defer("arguments", "options").first()
    if call is None:
        return None
    if call.run is None:
        later = f" until {shown_time(call.not_before)}" if call.not_before else ""
        return WaitingCall(call.task, f"a row of {call.queue}{later}; `queues staged` says what it waits for")
    run = Run.objects.filter(pk=call.run).first()
    what = "runs" if run is not None and run.state == Run.State.RUNNING else "was sent"
    own = "" if run is None or run.call == call.pk else ", as part of another call's run"
    return WaitingCall(call.task, f"it {what} in {call.queue}{own}")


def count(queue: str) -> int:
    """Return how many calls wait for a queue as rows, also those that are due later; one statement."""
    return Call.objects.filter(queue=queue, run=None).count()


def are_left(*tasks: str) -> bool:
    """Whether a call of one of these tasks waits or runs; one statement."""
    return Call.objects.filter(task__in=tasks).exists()


@dataclass(frozen=True)
class Holder:
    """A call that holds its key or a permit: its run was ``sent`` or is ``running``, or it is ``stopped``.

    ``worker`` is the start of the worker that runs it, ``calls`` how many calls its run has taken together.
    """

    task_id: str
    task: str
    queue: str
    key: str
    permit_key: str
    state: str
    since: datetime
    worker: str
    calls: int


def holders(*, queue: str = "", task: str = "", limit: int = 100) -> list[Holder]:
    """Return the calls that hold something, oldest first; four statements."""
    of = _of(queue, task)
    runs = list(Run.objects.filter(**of).order_by("sent_at")[:limit])
    calls = {call.pk: call for call in Call.objects.filter(pk__in=[run.call for run in runs]).defer("arguments")}
    taken = dict(
        Call.objects.filter(run__in=[run.pk for run in runs]).order_by().values_list("run").annotate(count=Count("pk"))
    )
    found = [
        Holder(
            calls[run.call].task_id,
            run.task,
            run.queue,
            calls[run.call].key_text,
            run.permit_key or "",
            str(run.state),
            run.began_at or run.sent_at,
            run.worker,
            taken.get(run.pk, 0),
        )
        for run in runs
        if run.call in calls
    ]
    stopped = Call.objects.filter(stopped_at__isnull=False, **of).defer("arguments").order_by("stopped_at")[:limit]
    rows = [
        Holder(call.task_id, call.task, call.queue, call.key_text, "", "stopped", call.stopped_at, "", 1)
        for call in stopped
        if call.stopped_at
    ]
    return [*rows, *found][:limit]


def _of(queue: str, task: str) -> dict[str, str]:
    """Return the filters for what is given."""
    return {name: value for name, value in (("queue", queue), ("task", task)) if value}


def staged(app: Any, *, queue: str = "", task: str = "", limit: int = 100) -> list[Staged]:
    """Return the lanes that have calls, those with most waiting first; four statements."""
    names = ("queue", "task", "fair_key", "permit_key", "rate_key")
    now, waits = deployment.read(), Q(run=None)
    of_disabled = waits & lanes.of_jobs(now.disabled_jobs)
    found = (
        Call.objects.filter(**_of(queue, task))
        .order_by()
        .values(*names)
        .annotate(
            waiting=Count("pk", filter=waits),
            later=Count("pk", filter=waits & ~is_due()),
            disabled=Count("pk", filter=of_disabled) if now.disabled_jobs else Value(0),
            stopped=Count("pk", filter=Q(stopped_at__isnull=False)),
            sent=Count("pk", filter=Q(run__in=Run.objects.filter(state=Run.State.SENT).values("pk"))),
            running=Count("pk", filter=Q(run__in=Run.objects.filter(state=Run.State.RUNNING).values("pk"))),
            oldest_at=Min("created_at", filter=waits),
        )
        .order_by("-waiting", *names)[:limit]
    )
    rows = list(found)
    keys = {row["permit_key"] for row in rows} - {""}
    held = dict(Run.objects.filter(permit_key__in=keys).values_list("permit_key").annotate(cost=Sum("permit_cost")))
    return [Staged(**row, why=_why(app, row, held, now)) for row in rows]


def _why(app: Any, lane: dict[str, Any], held: dict[str | None, int], now: Deployment) -> str:
    if not lane["waiting"]:
        return ""
    known = app.tasks.get(lane["task"])
    policy = (policy_of(known) or Policy(outbox=True)) if known is not None else None
    if lane["waiting"] == lane["disabled"]:
        return "for its job, which is disabled"
    if lane["waiting"] == lane["later"]:
        grouped = policy is not None and policy.group_by is not None
        return "for others of its group, or its retry" if grouped else "until it is due"
    if policy is None:
        return "for a worker that knows the task; this process does not"
    if lane["queue"] in now.paused_queues:
        return "for its queue, which is paused"
    if lane["task"] in now.disabled_tasks:
        return "for its task, which is disabled"
    policy = now.limited(lane["task"], policy)
    taken = held.get(lane["permit_key"], 0)
    if policy.permits and taken and (taken >= policy.permits.most or policy.permits.cost != 1):
        return f"for a permit: {taken} of {policy.permits.most} are held"
    if lane["stopped"]:
        count = lane["stopped"]
        letters = "a dead letter, the first of its key: replay, discard or release it"
        return f"for {letters}" if count == 1 else f"for {count} dead letters, each the first of its key"
    if policy.key_names is not None and lane["sent"] + lane["running"]:
        return "for the run of its key, or for room"
    return f"for its rate: {policy.rate.most} per {policy.rate.per_seconds:g} s" if policy.rate else "for room"
