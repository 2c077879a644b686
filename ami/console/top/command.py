"""The sub-command of ``manage.py queues``: live on a terminal, else printed once."""

import sys
from typing import IO, Any

from django.core.management.base import CommandError
from django.db import Error as DatabaseError

from ami.queues.management.added import SubCommand

NOT_A_TERMINAL = "Not a terminal: printed once. --once says so, --json prints JSON."


def add_arguments(parser: Any) -> None:
    """Add the options; the command adds ``--json``."""
    parser.add_argument(
        "--once", action="store_true", help="print once and end, exit 1 on an error or a broken promise"
    )


def run(options: dict[str, Any], out: IO[str]) -> None:
    """Show the queues until a key ends it, or print them once.

    Raises:
        CommandError: printed once, the database did not answer.
        SystemExit: printed once, the verdict is an error, which a source that did not answer is, too; code 1.
    """
    from ami.console.top import faults, live, once, terminal  # Rich and the pages: no other command needs them.
    from ami.telemetry.snapshots.verdict import ERROR

    if not (options["json"] or options["once"]):
        if terminal.is_usable(sys.stdin, out):
            live.show()
            return
        print(NOT_A_TERMINAL, file=sys.stderr)
    try:
        found = once.write(out, as_json=options["json"])
    except DatabaseError as error:
        raise CommandError("\n".join(faults.without_database(error))) from error
    if found.level == ERROR:
        raise SystemExit(1)


COMMAND = SubCommand(
    "show queues, workers, jobs and findings live in a terminal; keys pause, resume and replay", add_arguments, run
)
