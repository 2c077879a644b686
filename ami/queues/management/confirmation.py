"""Asks before an operation that cannot be undone or that moves every message."""

import sys
from collections.abc import Mapping

from django.core.management.base import CommandError, CommandParser

AGREED = {"y", "yes"}


def add_options(parser: CommandParser) -> None:
    """Add ``--yes`` and ``--dry-run``."""
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="show how many messages, change nothing")


def require_terminal(operation: str) -> None:
    """Refuse an operation whose question no user can answer.

    Raises:
        CommandError: standard input is not a terminal.
    """
    if not (sys.stdin and sys.stdin.isatty()):
        raise CommandError(
            f"'{operation}' asks first, and standard input is not a terminal; add --yes, or --dry-run to see how "
            "many messages it would reach."
        )


def require_agreement(question: str, counts: Mapping[str, int]) -> None:
    """Ask on the terminal, on stderr: stdout belongs to the result.

    Raises:
        CommandError: the answer is not yes.
    """
    for queue, count in counts.items():
        print(f"{queue}: {count} messages", file=sys.stderr)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        answer = ""
    if answer.strip().lower() not in AGREED:
        raise CommandError("Nothing was changed; answer y to go on.")
