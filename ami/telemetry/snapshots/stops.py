"""What operators have paused, parked and stopped, as their wishes say it, before workers have confirmed."""

from typing import Any

from django.db.models.functions import Now

from ami.queues.models import DesiredState, Worker
from ami.telemetry.snapshots.shape import Stop

Aspect, Kind = DesiredState.Aspect, DesiredState.Kind
CLOSING = (Aspect.PARKED, Aspect.STOPPED)


class Stops:
    """The wishes that hold now; one statement."""

    def __init__(self) -> None:
        rows = DesiredState.objects.filter(aspect__in=(Aspect.PAUSED, *CLOSING)).annotate(now=Now())
        self._rows: dict[tuple[str, str, str], Any] = {
            (row.kind, row.name, row.aspect): row for row in rows if not (row.until and row.until <= row.now)
        }

    def of_queue(self, queue: str) -> Stop | None:
        """Return the pause of a queue."""
        row = self._rows.get((Kind.QUEUE, queue, Aspect.PAUSED))
        return _stop(row, "paused") if row is not None and row.value else None

    def of_worker(self, worker: Worker) -> Stop | None:
        """Return why a worker takes nothing: the latest wish for its node, host or service counts, as for itself."""
        names = ((Kind.NODE, worker.node), (Kind.HOST, worker.host), (Kind.SERVICE, worker.service))
        found = [self._rows[*name, aspect] for name in names for aspect in CLOSING if (*name, aspect) in self._rows]
        row = max(found, key=lambda each: each.since, default=None)
        return _stop(row, str(row.aspect)) if row is not None and row.value else None


def _stop(row: Any, what: str) -> Stop:
    return Stop(row.by, row.why, row.since.timestamp(), row.until.timestamp() if row.until else None, what)
