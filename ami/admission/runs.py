"""The steps of a run, each one transaction that compares before it sets: begin, end, return.

The process that deletes the row of a run, or changes its state, decides; all others find no row.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from celery.utils.log import get_logger
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from kombu.utils import json

from ami.admission import groups, outcomes, shares, single_runs, stopped
from ami.admission.calls import delete
from ami.admission.models import Call, Outcome, RecentKey, Run
from ami.admission.policies import Policy, Scope, policy_of
from ami.celery import connection_names
from ami.celery.staged_calls import Begun, End, Next, Note

logger = get_logger(__name__)


def begin(task: Any, run: str, delivery: str, task_id: str | None = None) -> Begun | None:
    """Begin a run of this task that was sent and has not begun; of this call alone, if its message's id is given.

    One statement; one that merges takes all calls of its key.

    None: it has begun before, or has ended, or its calls are gone, or it is another call's.
    """
    policy = policy_of(task)
    if policy is None or not policy.merges:
        return Begun(run, delivery, None, None, None) if single_runs.begin(task.name, run, delivery, task_id) else None
    sent = Run.objects.filter(_is_of(task.name, task_id), pk=run, state=Run.State.SENT)
    found = sent.values_list("key").first()
    if found is None:
        return None
    values: dict[str, Any] = {
        "state": Run.State.RUNNING,
        "delivery": delivery,
        "worker": connection_names.incarnation(),
        "began_at": Now(),
    }
    if policy.unique is not None and policy.unique.until == Scope.UNTIL_EXECUTING:
        values["key"] = None
    with transaction.atomic():
        if not sent.update(**values):
            return None
        if found[0] is not None:  # Else it was called before its task had a key.
            groups.claim(policy, run, found[0])
        calls = list(Call.objects.filter(run=run).order_by("pk"))
        if not calls:
            Run.objects.filter(pk=run).delete()
            return None
        if len(calls) > 1 and not any(call.starts > 1 or call.retries or call.part for call in calls):
            outcomes.count(task.name, Outcome.Why.MERGED, len(calls) - 1)
    chosen = groups.chosen(policy, calls)
    if len(calls) > 1:
        logger.info("Calls merged: %d", len(calls), extra={"task": task.name, "task_id": chosen.task_id})
    args, kwargs = groups.arguments(task, policy, calls)
    return Begun(run, delivery, chosen.pk, args, kwargs)


def _is_of(task: str | None, task_id: str | None) -> Q:
    """Return the condition that a run was sent as this task and call: a message may name any run."""
    named = Q() if task is None else Q(task=task)
    return named if task_id is None else named & Q(call__in=Call.objects.filter(task_id=task_id).values("pk"))


def holds(begun: Begun) -> bool:
    rows = Run.objects.filter(pk=begun.run, delivery=begun.delivery, state=Run.State.RUNNING)
    if connection.in_atomic_block:
        rows = rows.select_for_update()
    return rows.values_list("pk", flat=True).first() is not None


def end(task: Any, begun: Begun, following: Next | None) -> bool:
    """End a run of this process, in one transaction: its calls are deleted, or wait for what follows.

    False: it was taken from this process, and nothing is changed.
    """
    policy = policy_of(task)
    if following is None and (policy is None or not policy.merges):
        return single_runs.end(begun.run, begun.delivery)
    mine = Run.objects.filter(pk=begun.run, delivery=begun.delivery, state=Run.State.RUNNING)
    how = End.DONE if following is None else End.RETURNED
    return _end(mine, task, how, following, begun.call)


def settle(app: Any, note: Note) -> bool:
    """Do what the parent saw of a message, unless its process has written an end already.

    A process may have died before it had begun the run: then its message is gone as well, and nothing else would take
    the run back before its message is sent again, after ten minutes.
    """
    began = Q(state=Run.State.RUNNING, delivery=note.delivery)
    rows = Run.objects.filter(began if note.end is End.DONE else began | Q(state=Run.State.SENT), pk=note.run)
    rows = rows.filter(_is_of(note.task, note.task_id))
    name = rows.values_list("task", flat=True).first()
    return name is not None and _end(rows, app.tasks.get(name), note.end, note.next)


def give_back(which: Q) -> int:
    """Let the calls of running runs wait again: the worker that ran them is dead. Return how many runs there were."""
    count = 0
    for pk, delivery in Run.objects.filter(which, state=Run.State.RUNNING).values_list("pk", "delivery"):
        same = Run.objects.filter(pk=pk, delivery=delivery, state=Run.State.RUNNING)
        count += _end(same, None, End.RETURNED, None)
    return count


def _end(
    rows: "QuerySet[Run]",
    task: Any,
    how: End,
    following: Next | None,
    call: int | None = None,
) -> bool:
    policy = policy_of(task) if task is not None else None
    with transaction.atomic():
        run = rows.select_for_update(of=("self",)).first()
        if run is None:
            return False
        shares.charge(run)
        Run.objects.filter(pk=run.pk).delete()
        calls = Call.objects.filter(run=run.pk)
        if how is End.RETURNED:
            _wait_again(task, policy, run, following, call)
        elif not (how is End.FAILED and _outlasts(task, policy, run)):
            delete(calls)
        if how is End.DONE and policy is not None and policy.unique is not None:
            _note_success(run, policy)
    return True


def _outlasts(task: Any, policy: Policy | None, run: Run) -> bool:
    """Whether the calls of a run that failed stay: the first one of a key in order, and those of a group.

    The process that ran the group could not take it apart itself: it was ended.
    """
    if policy is not None and policy.stops:
        return stopped.stop(run.call)
    calls = list(Call.objects.filter(run=run.pk).order_by("pk"))
    if policy is None or policy.group_by is None or len(calls) < 2:
        return False
    groups.take_apart(task, policy, calls)
    return True


def _wait_again(task: Any, policy: Policy | None, run: Run, following: Next | None, call: int | None) -> None:
    calls = Call.objects.filter(run=run.pk)
    values: dict[str, Any] = {"run": None}
    if following is not None:
        due = datetime.fromtimestamp(following.due, UTC) if following.due else None
        values |= {"retries": following.retries, "starts": 0, "not_before": due, "ready": due is None}
        if policy is not None and policy.group_by is not None:
            calls.filter(part="").update(part=run.pk)  # The same calls are tried again: no other one joins them.
        if _is_changed(task, policy, calls, following):
            # The arguments of one call are those of the run: the others are part of it.
            chosen = call if call is not None else calls.order_by("pk").values_list("pk", flat=True).first()
            delete(calls.exclude(pk=chosen))
            values["arguments"] = json.dumps([list(following.args or ()), dict(following.kwargs or {})])
        if following.headers:
            for row in calls:
                options = json.loads(row.options)
                options["headers"] = {**(options.get("headers") or {}), **following.headers}
                Call.objects.filter(pk=row.pk).update(options=json.dumps(options))
    calls.update(**values)


def _is_changed(task: Any, policy: Policy | None, calls: "QuerySet[Call]", following: Next) -> bool:
    """Whether a run goes on with other arguments than its calls have; a group that is retried stays one of calls."""
    if following.args is None and following.kwargs is None:
        return False
    if policy is None or policy.group_by is None:
        return True
    args, kwargs = groups.arguments(task, policy, list(calls.order_by("pk")))
    return json.dumps([args, kwargs]) != json.dumps([list(following.args or ()), dict(following.kwargs or {})])


def _note_success(run: Run, policy: Policy) -> None:
    unique = policy.unique
    if unique is None or run.key is None:
        return
    if unique.until == Scope.RECENTLY:
        until = Now() + timedelta(seconds=unique.seconds)
        RecentKey.objects.bulk_create(
            [RecentKey(key=run.key, until=until)], update_conflicts=True, update_fields=["until"], unique_fields=["key"]
        )
    if unique.drops and (dropped := _drop(run)):
        logger.info("Calls dropped, they came while one ran: %d", dropped, extra={"task": run.task})


def _drop(run: Run) -> int:
    """Delete the calls of a run's key that came while it ran; return how many."""
    return delete(Call.objects.filter(key=run.key, run=None, retries=0), Outcome.Why.RAN)
