"""Changes how much of a task may run, for the whole deployment, until it is changed again: permits, rates, weights."""

import json
from dataclasses import dataclass
from typing import Any

from celery import current_app

from ami.admission.keys import LONGEST
from ami.admission.policies import Permits, Rate, policy_of
from ami.environment.errors import did_you_mean
from ami.queues import wishes
from ami.queues.models import DesiredState
from ami.queues.refusals import Refused
from ami.queues.targets import Kind, Target
from ami.queues.tasks import load_tasks
from ami.queues.wishes import Operator

MOST, WEIGHT = DesiredState.Aspect.MOST, DesiredState.Aspect.WEIGHT
#: Far more than a deployment has processes.
LARGEST = 100_000
LARGEST_WEIGHT = 1000


@dataclass(frozen=True)
class Limit:
    """The permits or the rate of one name: ``declared`` in the code, ``most`` now, by whom and why where they differ.

    ``kind`` is ``permits`` (runs at once) or ``rate`` (runs ``per_seconds``).
    """

    name: str
    tasks: tuple[str, ...]
    per: str
    declared: int
    most: int
    by: str = ""
    why: str = ""
    kind: str = Kind.PERMITS
    per_seconds: float | None = None


@dataclass(frozen=True)
class Weight:
    """How much work time a fair key gets for each second of a key without a weight."""

    key: str
    weight: int
    by: str
    why: str


def limits() -> list[Limit]:
    """Return every limit that tasks declare, by name; one statement."""
    rows: dict[tuple[str, str], Any] = {(row.kind, row.name): row for row in DesiredState.objects.filter(aspect=MOST)}
    found = []
    for (kind, name), (declared, tasks) in sorted(_declared().items(), key=lambda each: (each[0][1], each[0][0])):
        row = rows.get((kind, name))
        is_changed = row is not None and row.value > 0
        by, why = (row.by, row.why) if row is not None and is_changed else ("", "")
        most = row.value if row is not None and is_changed else declared.most
        seconds = declared.per_seconds if isinstance(declared, Rate) else None
        found.append(Limit(name, tuple(tasks), declared.per, declared.most, most, by, why, kind, seconds))
    return found


def limit(name: str, most: int, operator: Operator, *, why: str = "", is_rate: bool = False) -> Limit:
    """Limit the runs that are active at once, or sent in the time of a rate, for each value of the limit's argument.

    What runs goes on: a lower number is reached as runs end. The dispatcher knows within three seconds. A name that
    only a rate has needs no ``is_rate``.

    Raises:
        Refused: no task declares a limit of this name, or the number is not one.
    """
    if not 1 <= most <= LARGEST:
        raise Refused(f"{most} is not a number of runs; give 1 to {LARGEST}. `queues pause` and `disable` stop a task.")
    return _record("limit", name, most, operator, why, is_rate)


def unlimit(name: str, operator: Operator, *, why: str = "", is_rate: bool = False) -> Limit:
    """Go back to the number that the code declares.

    Raises:
        Refused: no task declares a limit of this name.
    """
    return _record("unlimit", name, 0, operator, why, is_rate)


def weights() -> list[Weight]:
    """Return the fair keys with a weight other than 1; one statement."""
    rows = DesiredState.objects.filter(kind=Kind.FAIR_KEY, aspect=WEIGHT, value__gt=1).order_by("name")
    return [Weight(row.name, row.value, row.by, row.why) for row in rows]


def weigh(key: str, weight: int, operator: Operator, *, why: str = "") -> Weight:
    """Set the weight of a fair key: its work time, as a multiple of that of a key without one, while both have calls.

    ``key`` is the argument that ``fair_by`` names and its value, as JSON or a text as it stands: ``project_id=7``.

    Raises:
        Refused: the weight is not a number from 1 to 1000, or the key names no argument or is too long.
    """
    if not 1 <= weight <= LARGEST_WEIGHT:
        raise Refused(f"{weight} is not a weight; give 1 to {LARGEST_WEIGHT}, 1 for as much as every other key.")
    argument, equals, value = key.partition("=")
    if not equals or not argument.isidentifier():
        raise Refused(f"'{key[:255]}' names no argument; give a fair key as `queues staged` shows it: project_id=7.")
    name = key if len(key) == LONGEST else f"{argument}={_as_json(value)}"  # So long is one that was shortened.
    if len(name) > LONGEST:
        raise Refused(f"The key is longer than {LONGEST} characters.")
    wishes.record(operator, "weigh", Target(Kind.FAIR_KEY, name), WEIGHT, 0 if weight == 1 else weight, why=why)
    return Weight(name, weight, operator.name, why)


def _as_json(key: str) -> str:
    try:
        return json.dumps(json.loads(key), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return json.dumps(key)


def _record(verb: str, name: str, value: int, operator: Operator, why: str, is_rate: bool) -> Limit:
    declared = _declared()
    kinds = [kind for kind in (Kind.PERMITS, Kind.RATE) if (kind, name) in declared]
    if not kinds or (is_rate and Kind.RATE not in kinds):
        known = sorted({each for kind, each in declared if kind == Kind.RATE or not is_rate})
        what = "a rate" if is_rate else "permits or a rate"
        raise Refused(
            f"No task declares {what} of the name '{name[:255]}'.{did_you_mean(name, known)} "
            f"Known: {', '.join(known) or 'none'}."
        )
    kind = Kind.RATE if is_rate else kinds[0]
    wishes.record(operator, verb, Target(kind, name), MOST, value, why=why)
    return next(each for each in limits() if (each.kind, each.name) == (kind, name))


def _declared() -> dict[tuple[str, str], tuple[Permits | Rate, list[str]]]:
    """Return the limits by kind and name with the tasks that share them; without a name it is the task's."""
    load_tasks()
    found: dict[tuple[str, str], tuple[Permits | Rate, list[str]]] = {}
    for task in sorted(current_app.tasks):
        policy = policy_of(current_app.tasks[task])
        for kind, declared in ((Kind.PERMITS, policy.permits), (Kind.RATE, policy.rate)) if policy else ():
            if declared is not None:
                found.setdefault((str(kind), declared.name or task), (declared, []))[1].append(task)
    return found
