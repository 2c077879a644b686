"""``manage.py queues failures``: why tasks failed, one by one, by cause, or all tries of one task."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from ami.queues import failures
from ami.queues.management.argument_types import positive
from ami.queues.management.result import Result, listed
from ami.queues.models import TaskFailure
from ami.queues.wishes import Operator
from ami.topology.topology import Topology


def add_arguments(parser: Any) -> None:
    parser.add_argument("task_id", nargs="?", default="", help="a task's id: its tries, oldest first, with tracebacks")
    parser.add_argument("--causes", action="store_true", help="group by task, exception, place and message")
    parser.add_argument("--task", default="", help="of this task only")
    parser.add_argument("--cause", default="", help="of this cause only, as --causes shows it with --json")
    parser.add_argument("--search", default="", help="a part of the exception, message or place")
    parser.add_argument("--hours", type=positive, default=None, help="of the last hours only")
    parser.add_argument("--limit", type=positive, default=50, help="maximum number of rows (default 50)")


def show(_: Topology, __: Operator, options: dict[str, Any]) -> Result:
    """Return what was asked for; 1 as exit code where nothing fits a task's id."""
    since = timezone.now() - timedelta(hours=options["hours"]) if options["hours"] else None
    names = ("task", "task_id", "cause", "search")
    rows = failures.found(since=since, **{name: options[name] for name in names})
    if options["causes"]:
        return _causes(rows, options["limit"])
    if options["task_id"]:
        return _tries(options["task_id"], list(rows[: options["limit"]])[::-1])
    tries = list(rows.defer("traceback")[: options["limit"]])
    columns = ("failed at", "task", "id", "kind", "exception", "message", "place", "ran s")
    shown = ("failed_at", "task", "task_id", "kind", "exception", "message:.120", "place", "seconds:.1f")
    return listed(tries, shown, columns, [failures.as_dict(row) for row in tries])


def _causes(rows: Any, limit: int) -> Result:
    found = failures.causes(rows, limit)
    columns = ("tries", "tasks", "last", "task", "exception", "message", "place")
    return listed(found, ("tries", "tasks", "last_at", "task", "exception", "message:.120", "place"), columns)


def _tries(task_id: str, rows: list[TaskFailure]) -> Result:
    if not rows:
        closing = f"No failure of '{task_id[:60]}' is on record: it did not fail, or longer than 30 days ago."
        return Result([], [], (), closing, code=1)
    columns = ("try", "delivery", "failed at", "kind", "exception", "worker", "pid", "ran s", "peak MiB")
    numbers = (lambda row: row.retries + 1, lambda row: row.delivery + 1)
    shown = (*numbers, "failed_at", "kind", "exception", "node", "pid", "seconds:.1f", lambda row: row.peak_kib // 1024)
    text = "\n\n".join(f"Try {row.retries + 1}: {row.message}\n{row.traceback}".rstrip() for row in rows)
    return listed(rows, shown, columns, [failures.as_dict(row, with_traceback=True) for row in rows], text)


RUNS = {"failures": show}
