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
    if _answer(f"{question} [y/N] ").lower() not in AGREED:
        raise CommandError("Nothing was changed; answer y to go on.")


def require_number(operation: str, queue: str, count: int) -> int:
    """Say how many are lost, and ask for that number; return the answer.

    Raises:
        CommandError: it is no number.
    """
    answer = _answer(f"{operation}: {count} in {queue} are deleted for good. Type their number to go on: ")
    if not (answer.isascii() and answer.isdecimal()):
        raise CommandError(f"Nothing was changed; type {count} to go on.")
    return int(answer[:18])


def _answer(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    try:
        return sys.stdin.readline().strip()
    except KeyboardInterrupt:
        return ""
