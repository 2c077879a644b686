"""``manage.py queues limits``, ``limit``, ``unlimit``, ``weights`` and ``weigh``: how much of a task may run."""

from collections.abc import Callable
from typing import Any

from ami.queues import limits
from ami.queues.limits import Limit, Weight
from ami.queues.management.argument_types import positive
from ami.queues.management.result import Result, listed
from ami.queues.wishes import Operator
from ami.topology.topology import Topology


def add_arguments(parsers: dict[str, Any]) -> None:
    for verb in ("limit", "unlimit"):
        parsers[verb].add_argument("name", help="a task with permits or a rate, or the name that several share")
        parsers[verb].add_argument("--rate", action="store_true", help="the rate, where there are permits, too")
    parsers["limit"].add_argument("most", type=positive, help="how many, for each value of its argument")
    parsers["weigh"].add_argument("key", help="the argument that the task is fair by, and its value: project_id=7")
    parsers["weigh"].add_argument("weight", type=positive, help="1 to 1000")
    for verb in ("limit", "unlimit", "weigh"):
        parsers[verb].add_argument("--why", default="", help="reason, for the audit log and for who looks at it")


def _limits(_: Topology, __: Operator, ___: dict[str, Any]) -> Result:
    return _shown(limits.limits())


def _limit(_: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    given = {"why": options["why"], "is_rate": options["rate"]}
    return _shown([limits.limit(options["name"], options["most"], operator, **given)])


def _unlimit(_: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    return _shown([limits.unlimit(options["name"], operator, why=options["why"], is_rate=options["rate"])])


def _weights(_: Topology, __: Operator, ___: dict[str, Any]) -> Result:
    return _shown_weights(limits.weights())


def _weigh(_: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    return _shown_weights([limits.weigh(options["key"], options["weight"], operator, why=options["why"])])


def what(limit: Limit) -> str:
    """Return what a limit counts, in words."""
    return "at once" if limit.per_seconds is None else f"per {limit.per_seconds:g} s"


def _shown(found: list[Limit]) -> Result:
    columns = ("limit", "tasks", "for each", "runs", "", "in the code", "by", "why")
    return listed(found, ("name", "tasks", "per?", "most", what, "declared", "by?", "why?"), columns)


def _shown_weights(found: list[Weight]) -> Result:
    closing = "" if found else "Every key has the weight 1."
    return listed(found, ("key", "weight", "by", "why?"), ("key", "weight", "by", "why"), closing=closing)


RUNS: dict[str, Callable[..., Result]] = {
    "limits": _limits,
    "limit": _limit,
    "unlimit": _unlimit,
    "weights": _weights,
    "weigh": _weigh,
}
