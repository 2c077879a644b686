"""``manage.py queues dropped``: how many calls were merged or dropped, and why."""

from dataclasses import asdict
from typing import Any

from ami.admission.outcomes import counted
from ami.celery.shown_time import shown_time
from ami.queues.management.argument_types import positive
from ami.queues.management.result import Result
from ami.queues.wishes import Operator
from ami.topology.topology import Topology


def add_arguments(parser: Any) -> None:
    parser.add_argument("--task", default="", help="of this task only")
    parser.add_argument(
        "--hours", type=positive, default=24, help="in so many hours (default 24, at most 720 are kept)"
    )
    parser.add_argument("--limit", type=positive, default=50, help="maximum number of rows (default 50)")


def show(_: Topology, __: Operator, options: dict[str, Any]) -> Result:
    """Return a row for each task and reason, the most calls first."""
    found = counted(options["hours"], task=options["task"], limit=options["limit"])
    cells = [(each.task, each.calls, each.why, shown_time(each.last_hour)) for each in found]
    data = [asdict(each) | {"last_hour": each.last_hour.isoformat()} for each in found]
    return Result(data, cells, ("task", "calls", "what became of them", "last hour"))


RUNS = {"dropped": show}
