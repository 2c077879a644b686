"""The counts of an adoption over all its runs, and the message in flight: a killed run is resumed by them."""

import uuid
from collections import Counter
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.utils import timezone

from ami.queues.adoption.errors import AdoptionRefused
from ami.queues.adoption.old_message import OldMessage, one_line
from ami.queues.adoption.plan import Outcome, Plan
from ami.queues.models import Adoption

LONGEST_NAME = 255

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
        return cls(queue, one_line(plan.task, LONGEST_NAME), str(plan.outcome), runs_as, plan.queue, plan.why)


class Tally:
    """The counts of one old broker; ``counts`` are of all runs, ``run`` of this one.

    A message is counted before it is published, and its key is stored with the counts. A run that is killed leaves the
    key: when that message is seen again, it is not counted again, but may have been published already.
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
        """Count a message, and store that it is in flight, before anything is published.

        Raises:
            AdoptionRefused: another run has begun since.
        """
        key, line = f"{message.queue} {message.task_id}", Line.of(message.queue, plan)
        if message.redelivered and key in self._in_doubt:
            self._in_doubt.remove(key)
            self.possibly_doubled += 1
            self.run_possibly_doubled += 1
        else:
            self.counts[line] += 1
        self.run[line] += 1
        self._save([*self._in_doubt, key])

    def failed(self, message: OldMessage) -> None:
        """Keep a message in doubt: whether its copy was stored is not known."""
        self._in_doubt = [*self._in_doubt, f"{message.queue} {message.task_id}"][-MOST_IN_DOUBT:]

    def save(self) -> None:
        """Store the counts after the last message."""
        self._save(self._in_doubt)

    def _save(self, in_flight: list[str]) -> None:
        values: dict[str, Any] = {
            "counts": as_lists(self.counts),
            "possibly_doubled": self.possibly_doubled,
            "in_flight": in_flight,
            "updated_at": timezone.now(),
        }
        if not self._rows.filter(owner=self._owner).update(**values):
            raise AdoptionRefused("Another 'queues adopt' has begun and goes on; this one ends. Nothing is lost.")


def as_lists(counts: Counter[Line]) -> list[list[Any]]:
    """Return counts as JSON keeps them, sorted."""
    return [[*line, number] for line, number in sorted(counts.items())]
