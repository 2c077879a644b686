"""Dead letters as the console lists them: filters from the address, groups by cause with bars, counts by the hour."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import BadRequest
from django.db.models import CharField, Count, QuerySet
from django.db.models.functions import Cast, Substr
from django.http import QueryDict
from django.utils import timezone

from ami.console import bars
from ami.console.bars import Bars
from ami.queues.letters import found
from ami.queues.letters.found import Group
from ami.queues.letters.selection import Selection
from ami.queues.models import Letter

GROUPS = 100
HOURS, GROUP_HOURS = 48, 24
LONGEST_FILTER = 255
STATES = tuple(Letter.State.values)
#: Stands for letters in any state.
ANY = "any"


@dataclass(frozen=True)
class LetterFilter:
    """What the address asks for; without a state it is the dead."""

    queue: str = ""
    task: str = ""
    cause: str = ""
    text: str = ""
    state: str = Letter.State.DEAD.value

    @classmethod
    def of(cls, given: QueryDict, cause: str = "") -> "LetterFilter":
        """Return what an address asks for.

        Raises:
            BadRequest: there is no such state, or a value is too long.
        """
        values = {name: given.get(name, "").strip() for name in ("queue", "task", "text")}
        values["cause"] = cause or given.get("cause", "").strip()
        state = given.get("state") or Letter.State.DEAD.value
        if state not in (ANY, *STATES):
            raise BadRequest(f"A letter's state is one of {', '.join((ANY, *STATES))}.")
        if any(len(value) > LONGEST_FILTER or "\0" in value for value in values.values()):
            raise BadRequest(f"A filter has at most {LONGEST_FILTER} characters.")
        return cls(**values, state=state)

    @property
    def selection(self) -> Selection:
        return Selection(queue=self.queue, task=self.task, cause=self.cause, search=self.text)

    def rows(self) -> "QuerySet[Letter]":
        """Return the letters that fit, without their messages, the newest first."""
        rows = self.selection.rows("" if self.state == ANY else self.state)
        return found.with_messages(rows.defer(*found.HEAVY).order_by("-pk"))


@dataclass(frozen=True)
class ShownGroup:
    """One cause with its bars of the last day."""

    group: Group
    bars: Bars


def groups(rows: "QuerySet[Letter]") -> list[ShownGroup]:
    """Return the most frequent causes; three statements."""
    listed = found.groups(rows, GROUPS)
    counted = _by_cause_and_hour(rows.filter(cause__in=[group.cause for group in listed]), GROUP_HOURS)
    return [ShownGroup(group, bars.by_hour(counted[group.cause], GROUP_HOURS)) for group in listed]


def over_time(rows: "QuerySet[Letter]", hours: int = HOURS) -> Bars:
    """Return how many died in each of the last hours; one statement."""
    recent = rows.filter(collected_at__gte=_since(hours))
    return bars.by_hour(dict(found.over_time(recent)), hours)


def tasks() -> list[str]:
    """Return the names of tasks that have letters, for the filter."""
    return list(Letter.objects.order_by("task").values_list("task", flat=True).distinct()[:200])


def _by_cause_and_hour(rows: "QuerySet[Letter]", hours: int) -> Mapping[str, dict[datetime, int]]:
    hour = Substr(Cast("collected_at", CharField()), 1, len("2026-01-31 06"))
    recent = rows.filter(collected_at__gte=_since(hours)).order_by()
    counted: dict[str, dict[datetime, int]] = defaultdict(dict)
    values: Any = recent.annotate(hour=hour).values_list("cause", "hour").annotate(letters=Count("pk"))
    for cause, text, count in values:
        counted[cause][datetime.fromisoformat(f"{text[:10]}T{text[11:]}:00+00:00").astimezone(UTC)] = count
    return counted


def _since(hours: int) -> datetime:
    return timezone.now() - timedelta(hours=hours)
