"""The counts of an adoption over all its runs, and the message in flight: a killed run is resumed by them."""

import uuid
from collections import Counter
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.utils import timezone

from ami.adopt.errors import AdoptionRefused
from ami.adopt.models import Adoption
from ami.adopt.old_message import OldMessage, one_line
from ami.adopt.plan import UNKNOWN, UNREADABLE, Outcome, Plan

LONGEST_NAME = 255

#: Counts all names that are not known as one: their number has no bound, and each dead letter has its own.
OTHER = "(any other)"

#: Of how many messages in flight at most it is remembered that they may come twice.
MOST_IN_DOUBT = 100


class Line(NamedTuple):
    """What is counted together."""

    queue: str
    task: str
    outcome: str
    runs_as: str
    to: str
    why: str

    @classmethod
    def of(cls, queue: str, plan: Plan) -> "Line":
        runs_as = plan.runs_as if plan.outcome is Outcome.RUNS else ""
        name = OTHER if plan.why in (UNKNOWN, UNREADABLE) else one_line(plan.task, LONGEST_NAME)
        return cls(queue, name, str(plan.outcome), runs_as, plan.queue, plan.why)


class Tally:
    """The counts of one old broker; ``counts`` are of all runs, ``run`` of this one.

    What is stored counts a message before it is published, together with its key. A run that is killed leaves the key:
    when that message is seen again, it is not counted again, but may have been published already. The counts in memory
    change when the message is acknowledged; a failure before its publish leaves them as they were.
    """

    def __init__(self, source: str) -> None:
        Adoption.objects.bulk_create([Adoption(source=source)], ignore_conflicts=True)
        self._owner = uuid.uuid4().hex
        self._rows: QuerySet[Adoption] = Adoption.objects.filter(source=source)
        self._rows.update(owner=self._owner)
        row = self._rows.get()
        self._in_doubt: list[str] = list(row.in_flight)
        self.counts: Counter[Line] = Counter({Line(*line[:-1]): line[-1] for line in row.counts})
        self.possibly_doubled: int = row.possibly_doubled
        self.run: Counter[Line] = Counter()
        self.run_possibly_doubled = 0

    def begin(self, message: OldMessage, plan: Plan) -> None:
        """Store that a message is counted and in flight, before anything is published.

        Raises:
            AdoptionRefused: another run has begun since.
        """
        key = _key(message)
        known = self._is_known(message)
        counts = self.counts if known else self.counts + Counter([Line.of(message.queue, plan)])
        others = [each for each in self._in_doubt if not (known and each == key)]
        self._save([*others, key], counts, self.possibly_doubled + (known and _is_published(plan)))

    def done(self, message: OldMessage, plan: Plan) -> None:
        """Count a message that was acknowledged."""
        line = Line.of(message.queue, plan)
        self.run[line] += 1
        if not self._is_known(message):
            self.counts[line] += 1
            return
        self._in_doubt.remove(_key(message))
        if _is_published(plan):
            self.possibly_doubled += 1
            self.run_possibly_doubled += 1

    def failed(self, message: OldMessage, plan: Plan) -> None:
        """Keep a message in doubt whose publish or acknowledgement failed: it may have been stored, or removed."""
        if not self._is_known(message):
            self.counts[Line.of(message.queue, plan)] += 1
            self._in_doubt = [*self._in_doubt, _key(message)][-MOST_IN_DOUBT:]

    def _is_known(self, message: OldMessage) -> bool:
        """Whether a message was counted by an attempt that did not end."""
        return message.redelivered and _key(message) in self._in_doubt

    def save(self) -> None:
        """Store the counts after the last message."""
        self._save(self._in_doubt, self.counts, self.possibly_doubled)

    def _save(self, in_flight: list[str], counts: Counter[Line], possibly_doubled: int) -> None:
        values: dict[str, Any] = {
            "counts": as_lists(counts),
            "possibly_doubled": possibly_doubled,
            "in_flight": in_flight,
            "updated_at": timezone.now(),
        }
        if not self._rows.filter(owner=self._owner).update(**values):
            raise AdoptionRefused("Another 'queues adopt' has begun and goes on; this one ends. Nothing is lost.")


def as_lists(counts: Counter[Line]) -> list[list[Any]]:
    """Return counts as JSON keeps them, sorted."""
    return [[*line, number] for line, number in sorted(counts.items())]


def _key(message: OldMessage) -> str:
    return f"{message.queue} {message.task_id}"


def _is_published(plan: Plan) -> bool:
    return plan.outcome is not Outcome.DROPPED
