"""Calls of one key that are one run: which of them, with which arguments, and what becomes of those that fail."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any
from uuid import uuid4

from celery.utils.log import get_logger
from django.db import transaction
from django.db.models import Count, F, Sum
from django.db.models.functions import Length, Now
from kombu.utils import json

from ami.admission import keys, shares
from ami.admission.calls import delete
from ami.admission.models import Call, Outcome, Run
from ami.admission.policies import GroupBy, Merge, Policy, policy_of

logger = get_logger(__name__)


def chosen(policy: Policy, calls: Sequence[Call]) -> Call:
    """Return the call whose row stands for a run of these, oldest first."""
    return calls[-1 if policy.unique is not None and policy.unique.last_wins else 0]


def arguments(task: Any, policy: Policy, calls: Sequence[Call]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of one run of these calls, oldest first."""
    if policy.group_by is None:
        args, kwargs = json.loads(chosen(policy, calls).arguments)
        return args, kwargs
    given = [keys.arguments(task, *json.loads(call.arguments)) for call in calls]
    return [], merged(policy.group_by, given)


def merged(group: GroupBy, given: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments of a group by name, from those of its calls, oldest first."""
    if callable(group.merge):
        return group.merge(given)
    return given[-1] | {name: _together(how, [each[name] for each in given]) for name, how in group.merge.items()}


def _together(how: str, values: list[Any]) -> Any:
    if how == Merge.LAST:
        return values[-1]
    found = [each for value in values for each in (value if isinstance(value, (list, tuple)) else [value])]
    if how == Merge.LIST:
        return found
    return list({_canonical(each): each for each in found}.values())


def _canonical(value: Any) -> Any:
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return id(value)  # Nested too deeply to be compared: it is kept.


def claim(policy: Policy, run: str, key: str) -> None:
    """Let a run take the calls that wait for its key: of a group only as many as fit, and those of its part alone."""
    waiting = Call.objects.filter(key=key, run=None)
    group = policy.group_by
    if group is None:
        waiting.update(run=run)
        return
    own = Call.objects.filter(run=run).annotate(size=Length("arguments")).values_list("part", "size").first()
    part, size = own if own is not None else ("", 0)
    rows = waiting.filter(part=part).order_by("pk").annotate(size=Length("arguments")).values_list("pk", "size")
    found = list(rows[: group.most - 1])
    count = _fitting(group, [size, *(row_size for _, row_size in found)]) - 1
    Call.objects.filter(pk__in=[pk for pk, _ in found[:count]], run=None).update(run=run)


def _fitting(group: GroupBy, sizes: Sequence[int]) -> int:
    """Return how many of these calls, by the length of their arguments, one run takes: the first one in any case."""
    totals = list(accumulate(sizes[: group.most]))
    return max(1, sum(total <= group.most_bytes for total in totals))


def send_full(queues: Sequence[str], policies: dict[str, Policy]) -> None:
    """Let the groups that are large enough wait no longer; one statement for each grouped task, one more for some."""
    for name, policy in policies.items():
        if (group := policy.group_by) is None:
            continue
        collecting = Call.objects.filter(queue__in=queues, run=None, not_before__gt=Now(), task=name, retries=0)
        counted = collecting.order_by().values("key").annotate(calls=Count("pk"), size=Sum(Length("arguments")))
        full = [row["key"] for row in counted if row["calls"] >= group.most or (row["size"] or 0) >= group.most_bytes]
        if full:
            collecting.filter(key__in=full).update(not_before=F("created_at"))


def split(task: Any, policy: Policy, run: str, delivery: str) -> bool:
    """Take a run of several calls that failed for the last time apart; False if its message stands for all of it.

    The calls of a group are tried again as two halves, where it may handle an argument twice. Otherwise they become one
    call with the arguments of all, which runs once more: its letter has what failed.
    """
    with transaction.atomic():
        mine = Run.objects.select_for_update().filter(pk=run, delivery=delivery, state=Run.State.RUNNING).first()
        calls = list(Call.objects.filter(run=run).order_by("pk"))
        if mine is None or len(calls) < 2 or _is_message_enough(policy, mine, calls):
            return False
        shares.charge(mine)
        mine.delete()
        take_apart(task, policy, calls)
    logger.warning("Run of %d calls failed and was taken apart", len(calls), extra={"task": task.name, "run": run})
    return True


def take_apart(task: Any, policy: Policy, calls: Sequence[Call]) -> None:
    """Let calls that failed together wait again: as two halves, or as one call with the arguments of all."""
    if policy.group_by is not None and policy.group_by.halves:
        middle = len(calls) // 2
        for half in (calls[:middle], calls[middle:]):
            _wait_again(half, part=uuid4().hex)
    else:
        kept = _become_one(task, policy, calls)
        _wait_again([kept], part=uuid4().hex if policy.group_by else "")


def _is_message_enough(policy: Policy, run: Run, calls: Sequence[Call]) -> bool:
    """Whether the message of a run has the arguments that ran."""
    ran = chosen(policy, calls).arguments
    return policy.group_by is None and ran == next((each.arguments for each in calls if each.pk == run.call), ran)


def _wait_again(calls: Sequence[Call], **values: Any) -> None:
    again = {"run": None, "retries": 0, "starts": 0, "not_before": None, "ready": True}
    Call.objects.filter(pk__in=[call.pk for call in calls]).update(**again, **values)


def _become_one(task: Any, policy: Policy, calls: Sequence[Call], why: str = "") -> Call:
    """Let one call have the arguments of all; the others are deleted, and counted as ``why``."""
    kept, given = chosen(policy, calls), arguments(task, policy, calls)
    delete(Call.objects.filter(pk__in=[call.pk for call in calls if call.pk != kept.pk]), why)
    Call.objects.filter(pk=kept.pk).update(arguments=json.dumps([*given]))
    return kept


def compact(task: Any) -> tuple[int, int]:
    """Make one call of all that wait for a key; return how many waited, and how many are left.

    The calls of a group that are too large for one run stay several.
    """
    policy = policy_of(task)
    assert policy is not None
    assert policy.merges
    waiting = Call.objects.filter(task=task.name, run=None, part="", retries=0)
    before = waiting.count()
    several = waiting.order_by().values("key").annotate(count=Count("pk")).filter(count__gt=1)
    for key in [row["key"] for row in several]:
        with transaction.atomic():
            calls = list(waiting.filter(key=key).select_for_update().order_by("pk"))
            for some in _lots(policy, calls):
                if len(some) > 1:
                    _become_one(task, policy, some, Outcome.Why.MERGED)
    return before, waiting.count()


def _lots(policy: Policy, calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    """Return calls, oldest first, in lots that fit into one run."""
    start = 0
    while start < len(calls):
        most = policy.group_by.most if policy.group_by else len(calls)
        lot = calls[start : start + most]
        count = _fitting(policy.group_by, [len(call.arguments) for call in lot]) if policy.group_by else len(lot)
        yield lot[:count]
        start += count
