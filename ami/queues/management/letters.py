"""``manage.py queues letters``: thin wrappers around the operations on dead letters."""

import argparse
from collections.abc import Callable
from typing import Any

from django.conf import settings

from ami.celery.shown_time import shown_time
from ami.queues.letters import bodies, found, watch
from ami.queues.management import letter_operations
from ami.queues.management.argument_types import positive
from ami.queues.management.letter_operations import selected
from ami.queues.management.result import Result, listed
from ami.queues.models import Letter
from ami.queues.refusals import Refused
from ami.queues.wishes import Operator
from ami.topology.topology import Topology


def add_arguments(parser: Any) -> None:
    """Add one sub-command per operation."""
    texts = {
        "list": "list letters, the newest first",
        "causes": "group letters by task, exception, place and message",
        "counts": "count letters by the hour, or --days",
        "show": "show one letter with its trail, its failures and their tracebacks",
        "replay": "publish letters again, --rate a second; stopped by Ctrl-C, and resumed by its number",
        "replays": "list replays with how far they are",
        "stop": "stop a replay that runs",
        "resume": "go on with a stopped replay",
        "edit": "replay one letter with other arguments; the first ones are kept",
        "discard": "give letters up; their rows stay for ANTENNA_LETTER_DAYS",
        "body": "print the message of a letter as it was published, secrets included",
        "check": "exit 1 if letters are new, a cause grows, or a replayed letter came back",
    }
    verbs = parser.add_subparsers(dest="what", required=True)
    parsers = {verb: verbs.add_parser(verb, help=text, description=text) for verb, text in texts.items()}
    for verb in ("list", "causes", "counts", "replay", "discard"):
        _add_selection(parsers[verb])
    for verb in ("list", "causes", "counts"):
        parsers[verb].add_argument("--state", default="dead", choices=[*Letter.State.values, "any"])
    for verb in ("list", "causes"):
        parsers[verb].add_argument("--limit", type=positive, default=50, help="maximum number of rows (default 50)")
    for verb in ("show", "edit", "body"):
        parsers[verb].add_argument("letter", type=positive, help="the letter's number")
    for verb in ("stop", "resume"):
        parsers[verb].add_argument("replay", type=positive, help="the replay's number")
    for verb in ("replay", "stop", "resume", "edit", "discard"):
        parsers[verb].add_argument("--why", default="", help="reason, for the audit log and the letters' trails")
    parsers["counts"].add_argument("--days", action="store_true", help="by the day")
    parsers["replay"].add_argument("--rate", type=float, default=None, help="letters per second (default: no limit)")
    parsers["replay"].add_argument("--to", default="", help="a queue; default: where each task belongs today")
    for verb in ("replay", "discard"):
        parsers[verb].add_argument("--limit", type=positive, default=None, help="the oldest ones only")
        parsers[verb].add_argument("--yes", action="store_true", help="do not ask")
        parsers[verb].add_argument("--dry-run", action="store_true", help="show how many letters, change nothing")
    parsers["replay"].add_argument(
        "--background", action="store_true", help="let a worker publish them, and return at once"
    )
    parsers["edit"].add_argument("--args", dest="new_args", default=None, help="positional arguments as a JSON list")
    parsers["edit"].add_argument("--kwargs", default=None, help="named arguments as a JSON object")
    parsers["edit"].add_argument("--keep", action="store_true", help="change the arguments, and do not replay it yet")
    parsers["check"].add_argument("--minutes", type=positive, default=None, help="default ANTENNA_LETTER_MINUTES")
    for each in parsers.values():
        each.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON instead of a table"
        )


def _add_selection(parser: Any) -> None:
    parser.add_argument("ids", nargs="*", type=positive, help="numbers of letters; none for all that fit")
    parser.add_argument("--queue", default="", help="of this dead-letter queue only")
    parser.add_argument("--task", default="", help="of this task only")
    parser.add_argument("--cause", default="", help="of this cause only, as 'causes' shows it")
    parser.add_argument("--search", default="", help="a part of the id, arguments, reason or message")


def run(topology: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    """Run one of the sub-commands.

    Raises:
        Refused: the input is wrong; nothing was changed.
    """
    return ACTS[options["what"]](topology, operator, options)


def _rows(topology: Topology, options: dict[str, Any]) -> Any:
    state = options["state"]
    return selected(topology, options).rows("" if state == "any" else state)


def _list(topology: Topology, _: Operator, options: dict[str, Any]) -> Result:
    letters = list(
        found.with_messages(_rows(topology, options).order_by("-pk").defer(*found.HEAVY))[: options["limit"]]
    )
    columns = ("letter", "died at", "state", "queue", "task", "id", "why", "arguments", "deaths")
    shown = ("pk", "collected_at", "state", "queue", "task", "task_id", found.why, "arguments:.80", "died")
    return listed(letters, shown, columns, [found.as_dict(row) for row in letters])


def _causes(topology: Topology, _: Operator, options: dict[str, Any]) -> Result:
    groups = found.groups(_rows(topology, options), options["limit"])
    columns = ("letters", "came back", "last", "task", "exception", "message", "place", "cause")
    shown = ("letters", "came_back", "last_at", "task", "exception", "message:.120", "place", "cause")
    return listed(groups, shown, columns)


def _counts(topology: Topology, _: Operator, options: dict[str, Any]) -> Result:
    counted = found.over_time(_rows(topology, options), by_day=options["days"])
    columns = ("from", "letters")
    return Result([dict(zip(columns, each, strict=True)) for each in counted], counted, columns)


def _show(_: Topology, __: Operator, options: dict[str, Any]) -> Result:
    row = _letter(options["letter"])
    data = found.whole(row)
    cells = [(shown_time(each["at"]), each["what"], each["by"], each["why"], each["detail"]) for each in data["trail"]]
    about = [f"Letter {row.pk}: {row.task} {row.task_id}, {row.state}, in {row.queue}", f"Arguments: {row.arguments}"]
    for each in data["failures"]:
        about.append(f"Try {each['retries'] + 1} on {each['node']}: {each['exception']}: {each['message']}")
        about.append(each["traceback"])
    closing = "\n".join([*about, *([f"Missing: {data['missing']}"] if data["missing"] else [])])
    return Result(data, cells, ("at", "what", "by", "why", "detail"), closing)


def _body(_: Topology, operator: Operator, options: dict[str, Any]) -> Result:
    row = _letter(options["letter"])
    text = bodies.looked_at(row, operator).decode("utf-8", "replace")
    first = None if row.original is None else bytes(row.original).decode("utf-8", "replace")
    data = {"letter": row.pk, "headers": row.headers, "body": text, "first_body": first}
    return Result(data, [], (), f"{text}\n{row.headers}")


def _check(_: Topology, __: Operator, options: dict[str, Any]) -> Result:
    minutes = options["minutes"] or settings.ANTENNA_LETTER_MINUTES
    seen = watch.signs(minutes)
    closing = "" if seen else f"Nothing new in the last {minutes} minutes."
    shown, columns = ("name", "count", "sentence"), ("what", "count", "fact and remedy")
    return listed(seen, shown, columns, closing=closing, code=int(bool(seen)))


def _letter(key: int) -> Letter:
    row = Letter.objects.filter(pk=key).first()
    if row is None:
        raise Refused(f"There is no letter {key}; they are kept for {settings.ANTENNA_LETTER_DAYS} days.")
    return row


ACTS: dict[str, Callable[..., Result]] = {
    **letter_operations.RUNS,
    "list": _list,
    "causes": _causes,
    "counts": _counts,
    "show": _show,
    "body": _body,
    "check": _check,
}


RUNS = {"letters": run}
