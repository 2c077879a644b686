"""``manage.py queues misfire``: what becomes of an entry's ticks that are late."""

from collections.abc import Callable
from typing import Any

from ami.celery.tick_claims import MISFIRES
from ami.queues import schedule_operations
from ami.queues.management.result import Result
from ami.queues.wishes import Operator
from ami.topology.topology import Topology


def add_arguments(parsers: dict[str, Any]) -> None:
    parsers["misfire"].add_argument("entry", help="the entry's name in the schedule")
    parsers["misfire"].add_argument("policy", choices=MISFIRES)
    parsers["misfire"].add_argument("--why", default="", help="reason, for the audit log and for who looks at it")


def _misfire(_: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    before = schedule_operations.set_misfire(options["entry"], operator, options["policy"], why=options["why"])
    row = {"entry": options["entry"], "before": before, "misfire": options["policy"]}
    return Result(row, [tuple(row.values())], tuple(row))


RUNS: dict[str, Callable[..., Result]] = {"misfire": _misfire}
