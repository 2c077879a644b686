"""One queue: its figures now and over time, and what runs of it."""

from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse

from ami.console.page import Page
from ami.console.pages.overview import QUEUE_COLUMNS, TASK_COLUMNS, queue_row, running_tasks
from ami.console.tables import Column, Table
from ami.queues import start_commands
from ami.telemetry import series
from ami.telemetry.snapshots.shape import QueueFigures, Snapshot

#: The spans of the charts, in seconds.
SPANS = {"1h": 3600.0, "24h": 86400.0, "7d": 604800.0}
SPAN_TEXTS = {"1h": "1 hour", "24h": "24 hours", "7d": "7 days"}


class OneQueue(Page):
    """A page about the queue that its address names."""

    tab = "overview"

    def setup(self, request: HttpRequest, *args: Any, **given: Any) -> None:
        """Find the queue.

        Raises:
            Http404: the table has no such queue.
        """
        super().setup(request, *args, **given)
        self.queue: str = given["queue"]
        if self.queue not in (row.queue for row in settings.ANTENNA_TOPOLOGY.workloads):
            raise Http404(f"There is no queue '{self.queue[:60]}'.")

    def heading(self) -> str:
        """Return the queue's name."""
        return self.queue

    def span(self) -> str:
        """Return the span of the charts."""
        given = str(self.request.GET.get("span", "1h"))
        return given if given in SPANS else "1h"


class QueuePage(OneQueue):
    """The page of a queue."""

    template = "console/queue.html"
    parts = {"status": "console/parts/queue_status.html", "tasks": "console/parts/queue_tasks.html"}

    def figures(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the queue's figures, what runs of it, and its charts' span."""
        workload = settings.ANTENNA_TOPOLOGY.workload(self.queue)
        return {
            "queue": _figures(snapshot, self.queue, workload.service),
            "workload": workload,
            "workers": [worker for worker in snapshot.workers if self.queue in worker.queues],
            "tasks": self._tasks(snapshot),
            "start": start_commands.of_worker(workload),
            "span": self.span(),
            "spans": SPAN_TEXTS.items(),
            "dead_letter_queue": workload.dead_letter_queue,
        }

    def tables(self, snapshot: Snapshot) -> list[Table]:
        """Return what runs, the figures now, and those over time."""
        row = _figures(snapshot, self.queue, "")
        return [
            Table("tasks", TASK_COLUMNS, self._tasks(snapshot)),
            Table("queue", QUEUE_COLUMNS, [queue_row(row)]),
            self._series(),
        ]

    def _tasks(self, snapshot: Snapshot) -> list[dict[str, Any]]:
        return [row for row in running_tasks(snapshot) if self.queue in row["queues"]]

    def _series(self) -> Table:
        if self.request.GET.get("table") != "series":
            return Table("series", ())
        found = series.queue_series(self.queue, SPANS[self.span()])
        columns = [Column("at", "At", "time"), *(Column(name, name, "number") for name in found.columns)]
        values = zip(found.times, *found.columns.values(), strict=True)
        names = [column.name for column in columns]
        return Table("series", columns, [dict(zip(names, each, strict=True)) for each in values])


def _figures(snapshot: Snapshot, queue: str, service: str) -> QueueFigures:
    for row in snapshot.queues:
        if row.queue == queue:
            return row
    return QueueFigures(queue, service, None, None, 0, None, None, None)


class SeriesPage(OneQueue):
    """The points of a queue's charts, as JSON for the page's script."""

    def get(self, request: HttpRequest, **_: Any) -> HttpResponse:  # noqa: ARG002
        """Send times, columns and marks."""
        span = SPANS[self.span()]
        found, row = series.queue_series(self.queue, span), settings.ANTENNA_TOPOLOGY.workload(self.queue)
        marks = [{"at": mark.at, "kind": mark.kind, "text": mark.text} for mark in series.marks(self.queue, span)]
        data = {
            "times": found.times,
            "columns": found.columns,
            "marks": marks,
            "target": row.wait_target_seconds,
            "span": span,
        }
        return JsonResponse(data)
