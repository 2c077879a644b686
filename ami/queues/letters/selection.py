"""Which letters an operation reaches, or a list shows."""

from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Q, QuerySet

from ami.environment.errors import did_you_mean
from ami.queues import audit_log, dead_letters
from ami.queues.models import Letter
from ami.queues.refusals import Refused
from ami.topology.topology import Topology

#: So much of a list of numbers is shown.
LONGEST_LIST = 200


@dataclass(frozen=True)
class Selection:
    """Letters by the queue they were in, their task, the key of their cause, a text, or their numbers.

    ``search`` is a part of the task's id, the shown arguments, the reason or the failure's message. What is empty
    selects nothing out; ``ids`` without a number selects no letter.
    """

    queue: str = ""
    task: str = ""
    cause: str = ""
    search: str = ""
    ids: tuple[int, ...] | None = None

    def __bool__(self) -> bool:
        return self.ids is not None or any(asdict(self).values())

    def __str__(self) -> str:
        parts = [f"{name} {value}" for name, value in asdict(self).items() if value and name != "ids"]
        if self.ids is not None:
            parts.append(f"numbers {audit_log.ranges(self.ids)[:LONGEST_LIST]}")
        return ", ".join(parts) or "all"

    def rows(self, state: str = Letter.State.DEAD) -> "QuerySet[Letter]":
        """Return the letters in a state (empty: in any), oldest first."""
        given = {"state": state, "queue": self.queue, "task": self.task, "cause": self.cause}
        rows = Letter.objects.filter(**{name: value for name, value in given.items() if value})
        if self.ids is not None:
            rows = rows.filter(pk__in=self.ids)
        if self.search:
            names = ("task_id", "arguments", "reason", "detail", "cause_text", "exception")
            fits = Q()
            for name in names:
                fits |= Q(**{f"{name}__icontains": self.search})
            rows = rows.filter(fits)
        return rows.order_by("pk")

    def count(self, limit: int | None = None) -> int:
        """Return how many dead letters an operation on at most ``limit`` of them reaches now."""
        count = self.rows().count()
        return count if limit is None else min(count, limit)

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON takes; `of` reads it."""
        given = {name: value for name, value in asdict(self).items() if value and name != "ids"}
        return given if self.ids is None else given | {"ids": list(self.ids)}

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Selection":
        return cls(**{**given, "ids": tuple(given["ids"]) if "ids" in given else None})


def refuse_unknown_queue(topology: Topology, queue: str) -> None:
    """Raise `Refused` for a queue that keeps no dead letters; an empty name is none."""
    known = dead_letters.burial_queues(topology)
    if queue and queue not in known:
        raise Refused(f"'{queue}' keeps no dead letters. Known: {', '.join(known)}.{did_you_mean(queue, known)}")
