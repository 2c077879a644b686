"""The sub-commands of ``manage.py queues`` about states: of queues, of one task, and of what is disabled."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from celery import current_app

from ami.celery.process_name import name_of_this_process
from ami.queues import disabling, states, task_state
from ami.queues.letters import set_aside
from ami.queues.management.result import Result, listed
from ami.queues.wishes import Operator
from ami.topology.topology import Topology


def add_arguments(parsers: dict[str, Any], until: Callable[[str], Any]) -> None:
    parsers["state"].add_argument("task_id", help="the task's id")
    parsers["state"].add_argument(
        "--search",
        action="store_true",
        help="look at the head of every queue, too; on RabbitMQ each look is a delivery",
    )
    for verb in ("disable", "enable"):
        parsers[verb].add_argument("name", help="a task's name, or a job such as job:12")
        parsers[verb].add_argument("--why", default="", help="reason, for the audit log and for who looks at it")
    parsers["disable"].add_argument("--until", type=until, help="when it undoes itself, such as 2026-01-31T06:00")


def _states(topology: Topology, _: Operator, __: dict[str, Any]) -> Result:
    with current_app.connection_for_read() as connection:
        rows = states.counts(topology, connection)
    rows.append(states.total(rows))
    names = ("queue", "initial", "pending", "computing", "awaiting", "failed", "disabled")
    return listed(rows, names, names, [row.as_dict() for row in rows])


def _state(topology: Topology, _: Operator, options: dict[str, Any]) -> Result:
    if options["search"]:
        with current_app.connection_for_read() as connection:
            found = task_state.search(topology, connection, options["task_id"])
    else:
        found = task_state.of(options["task_id"])
    closing = f"This look cost {found.cost}." if found.cost else ""
    shown, columns = ("task_id", "state", "task?", "detail?", "letter"), ("task", "state", "name", "detail", "letter")
    return listed([found], shown, columns, asdict(found), closing, int(found.state == task_state.NO_TRACE))


def _snapshot(topology: Topology, _: Operator, __: dict[str, Any]) -> Result:
    with current_app.connection_for_read() as connection:
        data = states.ingest_snapshot(topology, connection)
    cells = [(queue, *values.values()) for queue, values in data.items()]
    return Result(data, cells, ("queue", "queued", "running", "completed", "failed", "workers"))


def _disable(_: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    target = disabling.disable(options["name"], operator, why=options["why"], until=options["until"])
    closing = "Workers set it aside within a second; without the broker's wake-up within ten. What runs goes on."
    return Result({"disabled": options["name"]}, [(str(target), "disabled")], ("what", "state"), closing)


def _enable(topology: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    target = disabling.enable(options["name"], operator, why=options["why"])
    with current_app.connection_for_write() as connection:
        count = set_aside.publish_enabled(topology, connection, name_of_this_process())
    return Result({"enabled": options["name"], "published": count}, [(str(target), count)], ("what", "published"))


def _disabled(_: Topology, __: Operator, ___: dict[str, Any]) -> Result:
    rows = disabling.listed()
    columns = ("what", "set aside", "by", "why", "since", "until", "state")
    shown = (_name, "set_aside", "by", "why", "since", "until", _disabled_state)
    return listed(rows, shown, columns, [disabling.as_dict(row) for row in rows])


def _name(row: disabling.Disabled) -> str:
    return disabling.name_of(row.kind, row.name)


def _disabled_state(row: disabling.Disabled) -> str:
    return "enabled, on its way" if row.is_over else "disabled"


RUNS: dict[str, Callable[..., Result]] = {
    "states": _states,
    "state": _state,
    "snapshot": _snapshot,
    "disable": _disable,
    "enable": _enable,
    "disabled": _disabled,
}
