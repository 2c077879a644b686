"""The sub-commands of ``manage.py queues`` that change what queues, workers and tasks do, and those that show it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from celery import current_app

from ami.celery.shown_time import shown_time
from ami.environment.deferred import deferred
from ami.queues import audit_log
from ami.queues.management import confirmation
from ami.queues.management.argument_types import positive
from ami.queues.management.result import Result, listed
from ami.queues.management.verbs import MODULE_OF, MODULES, VerbParser
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator, moment
from ami.topology.topology import Topology

if TYPE_CHECKING:
    from ami.admission import waiting_calls
    from ami.queues import cancellations, confirmations, messages, overview
    from ami.queues.confirmations import Confirmed
else:
    waiting_calls = deferred("ami.admission.waiting_calls")
    cancellations, confirmations, messages, overview = (
        deferred(f"ami.queues.{name}") for name in ("cancellations", "confirmations", "messages", "overview")
    )


def until(text: str) -> datetime:
    """Return a time with a zone; without one it is the server's."""
    try:
        return moment(text)
    except Refused as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None


def header(text: str) -> tuple[str, str]:
    """Return a header's name and value from ``name=value``."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"'{text}' is not a header such as antenna_origin=beat")
    return name, value


def add_parsers(verbs: Any) -> None:
    """Add one sub-command per operation."""
    texts = {
        "pause": "stop consuming from a queue, on every worker and over restarts; running tasks finish",
        "resume": "consume from a paused queue again",
        "park": "let workers (node, service or host) finish what runs and take nothing more",
        "stop": "park workers and end what they run; its messages return to the queue",
        "unpark": "let parked or stopped workers take tasks again",
        "scale": "set the number of processes of each worker; 0 for what it was started with",
        "restart": "replace the processes of workers one after the other",
        "drain": "wait until a queue is empty and its workers run nothing; exit 1 if it is not in time",
        "purge": "delete what waits of a queue: its messages, and calls that are rows",
        "move": "move messages from one queue to another",
        "peek": "show the oldest messages of a queue; on RabbitMQ a look counts as a delivery",
        "cancel": "cancel a task that waits, is scheduled or runs",
        "workers": "list the workers with what they run; with --dead exit 1 if one is dead",
        "list": "list the queues with what waits, who consumes, and who paused them",
        "audit": "show the latest entries of the audit log",
    }
    parsers = {verb: verbs.add_parser(verb, help=text, description=text) for verb, text in texts.items()}
    for verb in ("pause", "resume", "drain", "purge", "peek", "move"):
        parsers[verb].add_argument("queue", help="the queue's name")
    for verb in ("park", "stop", "unpark", "scale", "restart"):
        parsers[verb].add_argument("worker", help="a node (ingest@HOST), a service or a host")
    parsers["scale"].add_argument("count", type=int, help="processes of each worker")
    parsers["cancel"].add_argument("task_id", help="the task's id")
    for verb in ("pause", "resume", "park", "stop", "unpark", "scale", "restart", "purge", "move", "cancel"):
        parsers[verb].add_argument("--why", default="", help="reason, for the audit log and for who looks at it")
    for verb in ("pause", "park", "stop"):
        parsers[verb].add_argument("--until", type=until, help="when it undoes itself, such as 2026-01-31T06:00")
    for verb in ("pause", "resume", "park", "stop", "unpark", "scale"):
        parsers[verb].add_argument("--no-wait", action="store_true", help="do not wait for the workers to confirm")
    parsers["drain"].add_argument("--timeout", type=float, default=600.0, help="seconds to wait (default 600)")
    parsers["peek"].add_argument("--limit", type=positive, default=20, help="maximum number of messages, at most 20")
    parsers["move"].add_argument("--to", required=True, help="the destination queue")
    parsers["move"].add_argument("--task", default="", help="move messages of this task only")
    parsers["move"].add_argument("--header", type=header, action="append", default=[], help="name=value; repeatable")
    parsers["move"].add_argument("--limit", type=positive, default=None, help="maximum number of messages to move")
    for verb in ("purge", "move"):
        confirmation.add_options(parsers[verb])
    parsers["purge"].add_argument("--count", type=int, help="do not ask; delete if about so many wait")
    parsers["workers"].add_argument("--dead", action="store_true", help="dead workers only; exit 1 if there is one")
    parsers["audit"].add_argument("--limit", type=positive, default=50, help="maximum number of entries")
    for module, helps in MODULES.items():
        found = {verb: verbs.add_parser(verb, help=text, description=text) for verb, text in helps.items()}
        for parser in found.values():
            parser.complete = partial(_add_options, module, found)


def _add_options(module: str, parsers: dict[str, VerbParser]) -> None:
    """Let a module add the options of all its verbs."""
    for parser in parsers.values():
        parser.complete = None
    add = _module(module).add_arguments
    if module == "states":
        add(parsers, until)
    else:
        add(parsers[module] if tuple(parsers) == (module,) else parsers)


def _module(name: str) -> Any:
    return import_module(f"{__package__}.{name}")


def run(topology: Topology, verb: str, options: dict[str, Any]) -> Result:
    """Run one of the sub-commands.

    Raises:
        Refused: the input is wrong; nothing was changed.
    """
    name = MODULE_OF.get(verb)
    run = _module(name).RUNS[verb] if name else RUNS[verb]
    result: Result = run(topology, Operator(audit_log.command_user(), "command"), options)
    return result


def _confirming(path: str, subject: str, *more: str) -> Callable[..., Result]:
    """``path`` is the module of `ami.queues` and the function in it."""

    def confirm(topology: Topology, operator: Operator, options: dict[str, Any]) -> Result:
        named: dict[str, Any] = {name: options[name] for name in ("why", "until") if name in options}
        if "no_wait" in options:
            named["seconds"] = 0 if options["no_wait"] else confirmations.WAIT_SECONDS
        positional = [options[subject], *(options[name] for name in more)]
        module, _, function = path.partition(":")
        operation: Callable[..., Confirmed] = getattr(import_module(f"ami.queues.{module}"), function)
        found = operation(topology, *positional, operator, **named)
        states = (("confirmed", found.confirmed), ("not confirmed", found.missing), ("stale", found.stale))
        cells = [(node, state) for state, nodes in states for node in nodes]
        waited = not options.get("no_wait", True)
        closing = found.warning if cells else "No worker has reported itself; the wish holds for those that start."
        return Result(asdict(found), cells, ("worker", "state"), closing, int(bool(found.missing) and waited))

    return confirm


def _drain(topology: Topology, _: Operator, options: dict[str, Any]) -> Result:
    queue, shown = options["queue"], [-1, -1]

    def progress(waiting: int, running: int) -> None:
        if [waiting, running] != shown:
            shown[:] = waiting, running
            print(f"{queue}: {waiting} waiting, {running} running", file=sys.stderr)

    with current_app.connection_for_read() as connection:
        waiting, running = messages.drain(topology, connection, queue, options["timeout"], progress)
    data = {"queue": queue, "waiting": waiting, "running": running}
    return Result(data, [tuple(data.values())], tuple(data), code=int(bool(waiting or running)))


def _purge(topology: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    queue = options["queue"]
    with current_app.connection_for_write() as connection:
        messages.refuse_unknown(topology, queue)
        if options["dry_run"]:
            return _counted("would_purge", queue, messages.purgeable(connection, queue))
        count = messages.purge(topology, connection, queue, operator, why=options["why"], expected=options["count"])
    return _counted("purged", queue, count)


def _move(topology: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    queue, to = options["queue"], options["to"]

    def progress(moved: messages.Moved) -> None:
        if (moved.moved + moved.passed) % 1000 == 0 or moved.calls:
            calls = f", {moved.calls} calls" if moved.calls else ""
            print(f"{queue}: {moved.moved} moved, {moved.passed} put back{calls}", file=sys.stderr)

    with current_app.connection_for_write() as connection:
        messages.refuse_unknown(topology, queue)
        if options["dry_run"]:
            return _counted("would_look_at", queue, messages.waiting(connection, queue) + waiting_calls.count(queue))
        found = messages.move(
            topology,
            connection,
            queue,
            to,
            operator,
            why=options["why"],
            task=options["task"],
            headers=dict(options["header"]),
            limit=options["limit"],
            progress=progress,
        )
    cells = [(queue, found.moved, found.passed, found.calls)]
    return Result(asdict(found), cells, ("from", "moved", "put back", "calls moved"))


def _peek(topology: Topology, _: Operator, options: dict[str, Any]) -> Result:
    with current_app.connection_for_read() as connection:
        found = messages.peek(topology, connection, options["queue"], options["limit"])
    rows = [asdict(letter) for letter in found.messages]
    cells = [(row["task_id"], row["task"], row["retries"], row["arguments"]) for row in rows]
    closing = f"This look was {found.cost}." if found.cost else ""
    return Result({"messages": rows, "cost": found.cost}, cells, ("id", "task", "retries", "arguments"), closing)


def _cancel(_: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    found = cancellations.cancel(options["task_id"], operator, why=options["why"])
    where = f"runs on {found.node}; it has 30 s to end" if found.node else "is dropped when a worker receives it"
    return Result(asdict(found), [(found.task_id, where)], ("task", "what happens"))


def _workers(_: Topology, __: Operator, options: dict[str, Any]) -> Result:
    rows = overview.workers(only_dead=options["dead"])
    columns = ("worker", "state", "beat s", "queues", "processes", "running", "why")
    shown = ("node", "state", "beat_seconds:.0f", "queues", "concurrency", lambda row: len(row.running), "why")
    return listed(rows, shown, columns, code=int(options["dead"] and bool(rows)))


def _list(topology: Topology, __: Operator, ___: dict[str, Any]) -> Result:
    with current_app.connection_for_read() as connection:
        rows = overview.queues(topology, connection)
    shown = ("queue", "waiting", lambda row: "held" if row.is_held else row.consumers, "running", "paused?")
    return listed(rows, shown, ("queue", "waiting", "consumers", "running", "paused"))


def _audit(_: Topology, __: Operator, options: dict[str, Any]) -> Result:
    rows = overview.audit(options["limit"])
    cells = [
        (shown_time(row["at"]), row["who"], row["verb"], row["target"], row["outcome"], row["why"]) for row in rows
    ]
    return Result(rows, cells, ("at", "who", "verb", "target", "outcome", "why"))


def _counted(what: str, queue: str, count: int) -> Result:
    return Result({what: count}, [(queue, count)], ("queue", what.replace("_", " ")))


RUNS: dict[str, Callable[..., Result]] = {
    "pause": _confirming("pauses:pause", "queue"),
    "resume": _confirming("pauses:resume", "queue"),
    "park": _confirming("worker_operations:park", "worker"),
    "stop": _confirming("worker_operations:stop", "worker"),
    "unpark": _confirming("worker_operations:unpark", "worker"),
    "scale": _confirming("worker_operations:scale", "worker", "count"),
    "restart": _confirming("worker_operations:restart", "worker"),
    "drain": _drain,
    "purge": _purge,
    "move": _move,
    "peek": _peek,
    "cancel": _cancel,
    "workers": _workers,
    "list": _list,
    "audit": _audit,
}
