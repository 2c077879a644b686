"""What operators do to calls that are rows: merge those that wait, and free what a stuck one holds."""

from dataclasses import dataclass

from celery import current_app

from ami.admission import groups, notifier, releases
from ami.admission.policies import policy_of
from ami.admission.releases import Released
from ami.environment.errors import did_you_mean
from ami.queues.refusals import Refused
from ami.queues.tasks import load_tasks
from ami.queues.wishes import Operator, refuse_wrong


@dataclass(frozen=True)
class Compacted:
    """How many calls of a task waited, and how many are left."""

    task: str
    before: int
    after: int


def compact(task: str, operator: Operator, *, why: str = "") -> Compacted:
    """Make one call of all that wait for a key; of a group as many as fit into its runs.

    Raises:
        Refused: no task of this name merges its calls, or ``why`` is too long.
    """
    refuse_wrong(why, None)
    load_tasks()
    known = sorted(name for name, each in current_app.tasks.items() if (policy := policy_of(each)) and policy.merges)
    if task not in known:
        others = f"{did_you_mean(task, known)} Known: {', '.join(known) or 'none'}."
        raise Refused(f"'{task[:255]}' is not a task that merges calls.{others}")
    before, after = groups.compact(current_app.tasks[task])
    outcome = f"{before} calls became {after}"
    operator.record("compact", which=task, outcome=outcome, why=why)
    return Compacted(task, before, after)


def release(task_id: str, operator: Operator, *, why: str = "", drop: bool = False) -> Released:
    """Free the key and the permit that a call's run holds, whatever its process does; see `releases.release`.

    Raises:
        Refused: no call has this id, or it waits and is not to be dropped, or ``why`` is too long.
    """
    refuse_wrong(why, None)
    found = releases.release(task_id, drop=drop)
    if found is None:
        raise Refused(f"No call that is a row has the id '{task_id[:255]}'; `queues state` knows about others.")
    if found.was == "waiting" and not drop:
        raise Refused("The call waits and holds nothing; `queues staged` says for what. Give --drop to delete it.")
    which = f"{found.task} {task_id} {found.key}".strip()
    outcome = f"was {found.was}, {found.calls} calls {'deleted' if found.is_dropped else 'wait again'}"
    operator.record("release", which=which, outcome=outcome, why=why)
    notifier.notify(current_app)
    return found
