"""The page of calls that are rows: what waits for what, what holds it, and how much may run."""

from dataclasses import asdict
from typing import Any

from celery import current_app

from ami.admission import outcomes, waiting_calls
from ami.console.page import Page
from ami.console.tables import Column, Table
from ami.queues import limits
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
    parts = {"calls": "console/parts/calls.html"}

    def figures(self, snapshot: Snapshot) -> dict[str, Any]:  # noqa: ARG002
        """Return the lanes with most waiting calls, what is held longest, outcomes, limits and weights: twelve
        statements.
        """
        found = limits.limits()  # It imports the tasks, whose policies say what calls wait for.
        lanes = waiting_calls.staged(current_app, limit=MOST_ROWS)
        return {
            "lanes": [asdict(lane) | {"oldest_at": _epoch(lane.oldest_at)} for lane in lanes],
            "holders": [
                asdict(each) | {"since": _epoch(each.since)} for each in waiting_calls.holders(limit=MOST_ROWS)
            ],
            "outcomes": [
                asdict(each) | {"last_hour": _epoch(each.last_hour)}
                for each in outcomes.counted(OUTCOME_HOURS, limit=MOST_ROWS)
            ],
            "limits": [asdict(each) | {"is_changed": each.most != each.declared} for each in found],
            "weights": [asdict(each) for each in limits.weights()],
            "fair_keys": sorted({lane.fair_key for lane in lanes} - {""}),
            "most": MOST_ROWS,
        }

    def tables(self, snapshot: Snapshot) -> list[Table]:
        """Return what the page shows."""
        shown = self.figures(snapshot)
        columns = {"lanes": LANES, "holders": HOLDERS, "outcomes": OUTCOMES, "limits": LIMITS, "weights": WEIGHTS}
        return [Table(name, each, shown[name]) for name, each in columns.items()]


def _epoch(moment: Any) -> float | None:
    return None if moment is None else moment.timestamp()
