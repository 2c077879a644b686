"""The page of calls that are rows: what waits for what, what holds it, and how much may run."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from celery import current_app

from ami.admission import outcomes, waiting_calls
from ami.console.levers import VIEW_CALLS
from ami.console.page import Page
from ami.console.tables import Column, Table
from ami.queues import limits
from ami.queues.tasks import load_tasks
from ami.telemetry.snapshots.shape import Snapshot

MOST_ROWS = 100
LANES = (
    Column("queue", "Queue"),
    Column("task", "Task"),
    Column("fair_key", "Fair key"),
    Column("permit_key", "Permit"),
    Column("rate_key", "Rate"),
    Column("waiting", "Waiting", "number"),
    Column("later", "Later", "number"),
    Column("disabled", "Of disabled jobs", "number"),
    Column("stopped", "Stopped", "number"),
    Column("sent", "Sent", "number"),
    Column("running", "Running", "number"),
    Column("oldest_at", "Oldest", "time"),
    Column("why", "Waits"),
)
HOLDERS = (
    Column("task_id", "Id"),
    Column("task", "Task"),
    Column("queue", "Queue"),
    Column("key", "Key"),
    Column("permit_key", "Permit"),
    Column("state", "State"),
    Column("since", "Since", "time"),
    Column("calls", "Calls", "number"),
    Column("worker", "Worker"),
)
LIMITS = (
    Column("name", "Limit"),
    Column("kind", "Kind"),
    Column("tasks", "Tasks"),
    Column("per", "For each"),
    Column("most", "Runs", "number"),
    Column("per_seconds", "Per", "seconds"),
    Column("declared", "In the code", "number"),
    Column("by", "By"),
    Column("why", "Why"),
)
WEIGHTS = (Column("key", "Key"), Column("weight", "Weight", "number"), Column("by", "By"), Column("why", "Why"))


OUTCOMES = (
    Column("task", "Task"),
    Column("why", "What became of them"),
    Column("calls", "Calls", "number"),
    Column("last_hour", "Last hour", "time"),
)
OUTCOME_HOURS = 24


class CallsPage(Page):
    """Calls of tasks with a policy: those that wait by lane, hold something, or were merged or dropped; limits and
    weights.
    """

    tab = "calls"
    title = "Calls"
    template = "console/calls.html"
    needs = VIEW_CALLS
    parts = {"calls": "console/parts/calls.html"}

    def figures(self, snapshot: Snapshot) -> dict[str, Any]:  # noqa: ARG002
        """Return the lanes with most waiting calls, what is held longest, outcomes, limits and weights: twelve
        statements.
        """
        return {name: rows() for name, (_, rows) in TABLES.items()}

    def tables(self, snapshot: Snapshot) -> list[Table]:  # noqa: ARG002
        """Return what the page shows; only the table that is asked for has its rows."""
        asked = self.request.GET.get("table", next(iter(TABLES)))
        return [Table(name, columns, rows() if name == asked else ()) for name, (columns, rows) in TABLES.items()]


def _lanes() -> list[dict[str, Any]]:
    load_tasks()  # Their policies say what calls wait for.
    lanes = waiting_calls.staged(current_app, limit=MOST_ROWS)
    return [asdict(lane) | {"oldest_at": _epoch(lane.oldest_at)} for lane in lanes]


def _holders() -> list[dict[str, Any]]:
    return [asdict(each) | {"since": _epoch(each.since)} for each in waiting_calls.holders(limit=MOST_ROWS)]


def _outcomes() -> list[dict[str, Any]]:
    found = outcomes.counted(OUTCOME_HOURS, limit=MOST_ROWS)
    return [asdict(each) | {"last_hour": _epoch(each.last_hour)} for each in found]


def _limits() -> list[dict[str, Any]]:
    return [asdict(each) | {"is_changed": each.most != each.declared} for each in limits.limits()]


def _weights() -> list[dict[str, Any]]:
    return [asdict(each) for each in limits.weights()]


TABLES: dict[str, tuple[tuple[Column, ...], Callable[[], list[dict[str, Any]]]]] = {
    "lanes": (LANES, _lanes),
    "holders": (HOLDERS, _holders),
    "outcomes": (OUTCOMES, _outcomes),
    "limits": (LIMITS, _limits),
    "weights": (WEIGHTS, _weights),
}


def _epoch(moment: Any) -> float | None:
    return None if moment is None else moment.timestamp()
