"""The sub-commands of ``manage.py queues`` about states: of queues, of one task, and of what is disabled."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from celery import current_app

from ami.celery.process_name import name_of_this_process
from ami.celery.shown_time import shown_time
from ami.queues import disabling, states, task_state
from ami.queues.letters import set_aside
from ami.queues.management.result import Result
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
    listed = [*rows, states.total(rows)]
    names = ("queue", "initial", "pending", "computing", "awaiting", "failed", "disabled")
    cells = [tuple(row.as_dict()[name] for name in names) for row in listed]
    return Result([row.as_dict() for row in listed], cells, names)


def _state(topology: Topology, _: Operator, options: dict[str, Any]) -> Result:
    if options["search"]:
        with current_app.connection_for_read() as connection:
            found = task_state.search(topology, connection, options["task_id"])
    else:
        found = task_state.of(options["task_id"])
    closing = f"This look cost {found.cost}." if found.cost else ""
    cells = [(found.task_id, found.state, found.task or None, found.detail or None, found.letter)]
    columns = ("task", "state", "name", "detail", "letter")
    return Result(asdict(found), cells, columns, closing, int(found.state == task_state.NO_TRACE))


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
    cells = [
        (
            disabling.name_of(row.kind, row.name),
            row.set_aside,
            row.by,
            row.why,
            shown_time(row.since) or None,
            shown_time(row.until) or None,
            "enabled, on its way" if row.is_over else "disabled",
        )
        for row in rows
    ]
    return Result(
        [disabling.as_dict(row) for row in rows], cells, ("what", "set aside", "by", "why", "since", "until", "state")
    )


RUNS: dict[str, Callable[..., Result]] = {
    "states": _states,
    "state": _state,
    "snapshot": _snapshot,
    "disable": _disable,
    "enable": _enable,
    "disabled": _disabled,
}
