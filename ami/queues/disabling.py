"""Disables tasks by name, and single jobs: what would begin is set aside, and comes back when they are enabled."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from celery import current_app
from django.db.models import Count
from django.utils import timezone

from ami.celery.disabled import job_number
from ami.environment.errors import did_you_mean
from ami.queues import wishes
from ami.queues.letters import set_aside
from ami.queues.models import DesiredState
from ami.queues.refusals import Refused
from ami.queues.targets import Kind, Target
from ami.queues.tasks import load_tasks
from ami.queues.wishes import Operator

DISABLED = DesiredState.Aspect.DISABLED


@dataclass(frozen=True)
class Disabled:
    """What is disabled, by whom and why, and how many messages are set aside for it.

    ``is_over``: it is enabled again, and its messages are on their way back.
    """

    kind: str
    name: str
    by: str
    why: str
    since: datetime | None
    until: datetime | None
    set_aside: int
    is_over: bool = False


def target(name: str) -> Target:
    """Return what ``name`` names: a task, or a job as ``job:12``.

    Raises:
        Refused: it is neither.
    """
    if name.startswith("job:"):
        if not (number := job_number(name.removeprefix("job:"))):
            raise Refused(f"'{name[:60]}' is not a job such as job:12.")
        return Target(Kind.JOB, number)
    load_tasks()
    known = [each for each in current_app.tasks if not each.startswith("celery.")]
    if name not in known:
        raise Refused(f"There is no task '{name[:255]}'.{did_you_mean(name, known)} A job is written job:12.")
    return Target(Kind.TASK_NAME, name)


def disable(name: str, operator: Operator, *, why: str = "", until: datetime | None = None) -> Target:
    """Disable a task, or ``job:12``: what has not begun is set aside at its start. What runs goes on.

    Workers know within a second, without the broker's wake-up within ten.

    Raises:
        Refused: there is no such task, ``until`` is over, or ``why`` is too long.
    """
    found = target(name)
    wishes.record(operator, "disable", found, DISABLED, 1, why=why, until=until)
    return found


def enable(name: str, operator: Operator, *, why: str = "") -> Target:
    """Enable a task or a job; what was set aside goes to the tail of its queue, in the order in which it was.

    That is done by the process that collects dead letters within seconds (without the broker's wake-up, within a
    minute), or by `set_aside.publish_enabled`.

    Raises:
        Refused: it is not disabled, and nothing is set aside for it.
    """
    known = {name_of(row.kind, row.name): row for row in listed()}
    if name not in known:
        raise Refused(f"'{name[:255]}' is not disabled.{did_you_mean(name, list(known))}")
    found = Target(known[name].kind, known[name].name)
    wishes.record(operator, "enable", found, DISABLED, 0, why=why)
    return found


def listed(rows: Iterable[DesiredState] | None = None) -> list[Disabled]:
    """Return what is disabled, and what is enabled with messages that have not come back yet.

    Two statements, one for ``rows`` that were read, ordered by kind and name.
    """
    known = DesiredState.objects.filter(aspect=DISABLED).order_by("kind", "name") if rows is None else rows
    waiting, of_jobs = Counter[str](), Counter[str]()
    for task, job, count in set_aside.kept().order_by().values_list("task", "job").annotate(count=Count("pk")):
        waiting[task] += count
        of_jobs[job] += count
    now, found = timezone.now(), []
    for row in known:
        if row.aspect != DISABLED:
            continue
        count = (of_jobs if row.kind == Kind.JOB else waiting)[row.name]
        is_over = not row.value or (row.until is not None and row.until <= now)
        if count or not is_over:
            found.append(Disabled(row.kind, row.name, row.by, row.why, row.since, row.until, count, is_over))
    return found


def as_dict(row: Disabled) -> dict[str, Any]:
    """Return a row as JSON takes it."""
    times = {name: value.isoformat() if (value := getattr(row, name)) else None for name in ("since", "until")}
    return asdict(row) | times | {"what": name_of(row.kind, row.name)}


def name_of(kind: str, name: str) -> str:
    """Return how an operator names it: a task's name, or ``job:12``."""
    return f"job:{name}" if kind == Kind.JOB else name
