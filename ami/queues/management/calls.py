"""``manage.py queues compact`` and ``release``: calls of tasks with a policy that wait or are stuck."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ami.queues import call_operations
from ami.queues.management.result import Result
from ami.queues.wishes import Operator
from ami.topology.topology import Topology


def add_arguments(parsers: dict[str, Any]) -> None:
    parsers["compact"].add_argument("task", help="the task's name")
    parsers["release"].add_argument("task_id", help="the id of a call; `queues staged --calls` lists those that hold")
    parsers["release"].add_argument("--drop", action="store_true", help="delete its calls, run none of them again")
    for verb in ("compact", "release"):
        parsers[verb].add_argument("--why", default="", help="reason, for the audit log and for who looks at it")


def _compact(_: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    found = call_operations.compact(options["task"], operator, why=options["why"])
    return Result(asdict(found), [(found.task, found.before, found.after)], ("task", "waited", "wait"))


def _release(_: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    found = call_operations.release(options["task_id"], operator, why=options["why"], drop=options["drop"])
    cells = [(found.task_id, found.task, found.key, found.was, found.calls, "deleted" if found.is_dropped else "again")]
    return Result(asdict(found), cells, ("id", "task", "key", "was", "calls", "now"))


RUNS: dict[str, Callable[..., Result]] = {"compact": _compact, "release": _release}
