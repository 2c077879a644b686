"""Sub-commands of ``manage.py queues`` that a layer above adds; `config` connects them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any


@dataclass(frozen=True)
class SubCommand:
    """A sub-command: ``add_arguments`` gets its parser, ``run`` its options and what it prints to.

    Raises:
        CommandError: what ``run`` raises when it cannot go on, with one sentence.
    """

    help: str
    add_arguments: Callable[[Any], None]
    run: Callable[[dict[str, Any], IO[str]], None]


RUNS: dict[str, SubCommand] = {}


def connect(verb: str, command: SubCommand) -> None:
    """Add a sub-command; it may not have the name of another one."""
    RUNS[verb] = command


def add_parsers(verbs: Any) -> None:
    """Add the sub-commands that are connected."""
    for verb, command in RUNS.items():
        command.add_arguments(verbs.add_parser(verb, help=command.help, description=command.help))
