"""The pages of workers: by host with what each runs, and one worker, service or host with its memory over time."""

from dataclasses import dataclass
from typing import Any

from django.http import Http404
from django.urls import reverse

from ami.console import seen_workers
from ami.console.page import Page
from ami.console.tables import Column, Table
from ami.queues import start_commands
from ami.telemetry import series
from ami.telemetry.snapshots.shape import Snapshot, WorkerFigures

SPANS = {"1h": 3600.0, "24h": 86400.0}
FILTERS = ("queue", "state", "host")
COLUMNS = (
    Column("host", "Host"),
    Column("node", "Worker"),
    Column("service", "Service"),
    Column("version", "Version"),
    Column("state", "State"),
    Column("why", "Why"),
    Column("queues", "Queues"),
    Column("closed_queues", "Closed queues"),
    Column("concurrency", "Concurrency", "number"),
    Column("children", "Processes", "number"),
    Column("pid", "Process id"),
    Column("started_at", "Started", "time"),
    Column("seen_seconds", "Last beat", "seconds"),
    Column("memory_used_bytes", "Memory", "bytes"),
    Column("memory_limit_bytes", "Limit", "bytes"),
    Column("hold_percent", "Holds at", "number"),
    Column("release_percent", "Releases at", "number"),
    Column("held_seconds", "Held", "seconds"),
    Column("reasons", "Reasons"),
    Column("running", "Runs"),
)


@dataclass(frozen=True)
class Gone:
    """A worker that reports itself no more; ``at`` in epoch seconds."""

    at: float
    version: str


class WorkersPage(Page):
    """Every worker by host; the address filters by queue, state and host."""

    tab = "workers"
    title = "Workers and hosts"
    template = "console/workers.html"
    parts = {"workers": "console/parts/workers.html"}

    def figures(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the workers that fit, by host."""
        return {
            "hosts": seen_workers.hosts(self._shown(snapshot)),
            "wanted": self._wanted(),
            "states": sorted({worker.state for worker in snapshot.workers}),
            "queues": sorted({queue for worker in snapshot.workers for queue in worker.queues}),
            "is_filtered": any(self._wanted().values()),
            "gauge_width": seen_workers.GAUGE_WIDTH,
            "path": self.request.path,
            "start_workers": start_commands.of_workers(),
        }

    def tables(self, snapshot: Snapshot) -> list[Table]:
        """Return the workers that fit."""
        return [Table("workers", COLUMNS, [seen_workers.as_row(worker) for worker in self._shown(snapshot)])]

    def _wanted(self) -> dict[str, str]:
        return {name: self.request.GET.get(name, "").strip() for name in FILTERS}

    def _shown(self, snapshot: Snapshot) -> list[WorkerFigures]:
        return [worker for worker in snapshot.workers if _fits(worker, self._wanted())]


class WorkerPage(Page):
    """One worker by its node with its memory over time, or the workers of a service or host; each with its levers."""

    tab = "workers"
    template = "console/worker.html"
    parts = {"workers": "console/parts/workers.html"}

    @property
    def name(self) -> str:
        """The node, service or host."""
        return str(self.kwargs["name"])

    def heading(self) -> str:
        """Return the name."""
        return self.name

    def breadcrumbs(self) -> list[tuple[str, str]]:
        """Return the page of all workers."""
        return [(reverse("console:workers"), "Workers and hosts")]

    def figures(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the workers of this name.

        Raises:
            Http404: there is none, and no worker of this name was ever sampled.
        """
        found = seen_workers.named(snapshot.workers, self.name)
        context = {"name": self.name, "gauge_width": seen_workers.GAUGE_WIDTH, "hosts": seen_workers.hosts(found)}
        is_part = bool(self.part_asked(self.request))
        gone = None if found else self._last_seen(is_part)
        is_node = gone is not None or (len(found) == 1 and found[0].node == self.name)
        context |= {"is_node": is_node, "gone": gone, "is_gone": not found}
        return context | (self._memory() if is_node and not is_part else {})

    def tables(self, snapshot: Snapshot) -> list[Table]:
        """Return the workers of this name."""
        return [
            Table(
                "workers",
                COLUMNS,
                [seen_workers.as_row(worker) for worker in seen_workers.named(snapshot.workers, self.name)],
            )
        ]

    def _last_seen(self, is_part: bool) -> Gone | None:
        """Return when the worker of this name was there; its page was opened, or a poll finds it gone."""
        if (found := series.last_seen(self.name)) is not None:
            return Gone(found[0].timestamp(), found[1])
        if not is_part:
            raise Http404("There is no such worker, service or host.")
        return None

    def _memory(self) -> dict[str, Any]:
        span = self.request.GET.get("span", "")
        span = span if span in SPANS else "1h"
        found = series.worker_series(self.name, SPANS[span])
        return {
            "span": span,
            "spans": tuple(SPANS),
            "chart": seen_workers.chart(found.times, found.columns),
            "chart_width": seen_workers.CHART_WIDTH,
            "chart_height": seen_workers.CHART_HEIGHT,
        }


def _fits(worker: WorkerFigures, wanted: dict[str, str]) -> bool:
    queue, state, host = wanted["queue"], wanted["state"], wanted["host"]
    return (
        (not queue or queue in worker.queues)
        and (not state or state == worker.state)
        and (not host or host == worker.host)
    )
