"""System checks: what `manage.py check` says about the policies of tasks."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from celery import current_app
from django.core.checks import CheckMessage, Error, register

from ami.admission import keys
from ami.admission.policies import GroupBy, InOrder, Permits, Policy, Rate, Unique, policy_of
from ami.celery import sensitive
from ami.environment.errors import did_you_mean

#: Options of a policy that exist elsewhere, and not here.
UNKNOWN = ("limit", "limits", "lock", "unique_by", "debounce", "throttle")
_TYPES: dict[str, type] = {
    "unique": Unique,
    "group_by": GroupBy,
    "in_order_by": InOrder,
    "permits": Permits,
    "rate": Rate,
    "fair_by": str,
    "outbox": bool,
}
#: Each makes a call's key.
_KEYS = ("unique", "group_by", "in_order_by")


@register("admission")
def check_policies(**_: Any) -> list[CheckMessage]:
    """Check every registered task's policy, and those of several tasks against each other."""
    tasks = [task for name, task in sorted(current_app.tasks.items()) if not name.startswith("celery.")]
    return [*(message for task in tasks for message in check_task(task)), *_check_shared(tasks)]


def check_task(task: Any) -> Iterator[CheckMessage]:
    """Check the policy of one task."""
    for name in UNKNOWN:
        if getattr(task, name, None) is not None:
            yield Error(
                f"{task.name} declares {name}=, which is no policy here.", hint=_hint(name), id="admission.E001"
            )
    wrong = _wrong(task)
    for name, kind in wrong.items():
        yield Error(
            f"{task.name} declares {name}={getattr(task, name)!r}.",
            hint=f"Give a value of {kind.__name__}.",
            id="admission.E002",
        )
    policy = None if wrong else policy_of(task)
    if policy is not None:
        yield from _check_arguments(task, policy)
        yield from _check_kind(task, policy)
        yield from _check_merged(task, policy)
        yield from _check_sensitive(task, policy)


def _hint(name: str) -> str:
    return f"Use {', '.join(f'{each}=' for each in _TYPES)}.{did_you_mean(name, _TYPES)}"


def _wrong(task: Any) -> dict[str, type]:
    given = {name: getattr(task, name, None) for name in _TYPES}
    return {
        name: kind for name, kind in _TYPES.items() if given[name] is not None and not isinstance(given[name], kind)
    }


def _check_arguments(task: Any, policy: Policy) -> Iterator[CheckMessage]:
    known = keys.parameters(task)
    for name in dict.fromkeys(policy.names):
        if known is not None and name not in known:
            yield Error(
                f"{task.name} has a policy by its argument '{name}', which it does not take."
                f"{did_you_mean(name, known)}",
                hint=f"Its arguments are {', '.join(known) or 'none'}.",
                id="admission.E003",
            )


def _check_kind(task: Any, policy: Policy) -> Iterator[CheckMessage]:
    if not task.acks_late:
        yield Error(
            f"{task.name} has a policy and acknowledges its message before it runs: a killed worker loses the run.",
            hint="Leave out acks_late=False.",
            id="admission.E004",
        )
    if policy.merges and not task.ignore_result:
        yield Error(
            f"{task.name} merges calls and stores its result: that of a merged call never comes.",
            hint="Add ignore_result=True.",
            id="admission.E005",
        )
    if len(given := [name for name in _KEYS if getattr(task, name)]) > 1:
        yield Error(
            f"{task.name} declares {' and '.join(f'{name}=' for name in given)}: each says which calls are one key.",
            hint="Give one of them.",
            id="admission.E008",
        )
    if task.fence_by:
        yield Error(
            f"{task.name} has a policy and fence_by='{task.fence_by}': its run is its fence already.",
            hint=f"Replace fence_by by unique=Unique(by=('{task.fence_by}',)).",
            id="admission.E006",
        )


def _check_merged(task: Any, policy: Policy) -> Iterator[CheckMessage]:
    """Name arguments of limits and fairness that the calls of one run may have several values of."""
    if not policy.merges or not policy.key_names:
        return
    for name in dict.fromkeys(policy.limit_names):
        if name not in policy.key_names:
            declared = "unique=Unique" if policy.unique else "group_by=GroupBy"
            yield Error(
                f"{task.name} makes one run of calls with several values of '{name}', by which it is limited or fair: "
                "the run counts for one of them.",
                hint=f"Add it to the key: {declared}(by={(*policy.key_names, name)!r}, ...).",
                id="admission.E009",
            )


def _check_sensitive(task: Any, policy: Policy) -> Iterator[CheckMessage]:
    """Name sensitive arguments whose values keys would show; a key of all arguments has what the task declares."""
    shown, known = {*policy.limit_names, *(policy.key_names or ())}, keys.parameters(task)
    if policy.key_names == ():
        shown.update(task.sensitive if known is None else known)
    for name in sorted(shown & sensitive.names_of(task.app, task.name)):
        yield Error(
            f"{task.name} has a policy by its sensitive argument '{name}': its value is shown in keys, in errors and "
            "on pages.",
            hint="Name other arguments in the policy, such as a digest of it, or leave it out of sensitive=.",
            id="admission.E010",
        )


def _check_shared(tasks: list[Any]) -> Iterator[CheckMessage]:
    """Name limits of one name with different numbers."""
    seen: dict[tuple[str, str], tuple[str, Any]] = {}
    for task in tasks:
        policy = None if _wrong(task) else policy_of(task)
        for limit in (policy.permits, policy.rate) if policy else ():
            if limit is None or not limit.name:
                continue
            place = type(limit).__name__, limit.name
            first, known = seen.setdefault(place, (task.name, limit))
            if isinstance(known, Permits) and isinstance(limit, Permits):
                known = replace(known, cost=limit.cost)  # One task may cost more than another.
            if known != limit:
                yield Error(
                    f"{first} and {task.name} share {place[0]}(name='{limit.name}') and differ: {known} and {limit}.",
                    hint="Give both the same values, or another name.",
                    id="admission.E007",
                )
