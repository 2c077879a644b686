"""``manage.py queues staged``: calls of tasks with a policy that are rows, what they wait for, and what holds it."""

from typing import Any

from celery import current_app

from ami.admission.waiting_calls import holders, staged
from ami.queues.management.argument_types import positive
from ami.queues.management.result import Result, listed
from ami.queues.tasks import load_tasks
from ami.queues.wishes import Operator
from ami.topology.topology import Topology


def add_arguments(parser: Any) -> None:
    parser.add_argument("--queue", default="", help="of this queue only")
    parser.add_argument("--task", default="", help="of this task only")
    parser.add_argument("--calls", action="store_true", help="the calls that hold a key or a permit, one by one")
    parser.add_argument("--limit", type=positive, default=50, help="maximum number of rows (default 50)")


def show(_: Topology, __: Operator, options: dict[str, Any]) -> Result:
    """Return the lanes with calls, those with most waiting first."""
    which = {name: options[name] for name in ("queue", "task", "limit")}
    if options["calls"]:
        return _holders(which)
    load_tasks()
    found = staged(current_app, **which)
    columns = ("queue", "task", "fair key", "permit", "rate", "waiting", "sent", "running", "oldest", "waits")
    shown = ("queue", "task", "fair_key", "permit_key", "rate_key", "waiting", "sent", "running", "oldest_at", "why")
    return listed(found, shown, columns)


def _holders(which: dict[str, Any]) -> Result:
    found = holders(**which)
    columns = ("id", "task", "key", "permit", "state", "since", "calls", "worker")
    return listed(found, ("task_id", "task", "key", "permit_key", "state", "since", "calls", "worker"), columns)


RUNS = {"staged": show}
