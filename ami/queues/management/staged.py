"""``manage.py queues staged``: calls of tasks with a policy that are rows, what they wait for, and what holds it."""

from dataclasses import asdict
from typing import Any

from celery import current_app

from ami.admission.waiting_calls import holders, staged
from ami.celery.shown_time import shown_time
from ami.queues.management.argument_types import positive
from ami.queues.management.result import Result
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
    cells = [
        (
            each.queue,
            each.task,
            each.fair_key,
            each.permit_key,
            each.rate_key,
            each.waiting,
            each.sent,
            each.running,
            shown_time(each.oldest_at),
            each.why,
        )
        for each in found
    ]
    data = [asdict(each) | {"oldest_at": each.oldest_at.isoformat() if each.oldest_at else None} for each in found]
    return Result(data, cells, columns)


def _holders(which: dict[str, Any]) -> Result:
    found = holders(**which)
    columns = ("id", "task", "key", "permit", "state", "since", "calls", "worker")
    cells = [
        (
            each.task_id,
            each.task,
            each.key,
            each.permit_key,
            each.state,
            shown_time(each.since),
            each.calls,
            each.worker,
        )
        for each in found
    ]
    return Result([asdict(each) | {"since": each.since.isoformat()} for each in found], cells, columns)


RUNS = {"staged": show}
