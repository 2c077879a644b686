"""``manage.py queues dropped``: how many calls were merged or dropped, and why."""

from typing import Any

from ami.admission.outcomes import counted
from ami.queues.management.argument_types import positive
from ami.queues.management.result import Result, listed
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
    return listed(found, ("task", "calls", "why", "last_hour"), ("task", "calls", "what became of them", "last hour"))


RUNS = {"dropped": show}
