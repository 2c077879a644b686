"""The words in which `ami.adopt.old_tasks` says what becomes of each task of the old application."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Arguments = dict[str, Any]


class CannotRun(Exception):
    """A message that cannot run here. ``why`` is counted, ``detail`` is in the dead letter only."""

    def __init__(self, why: str, detail: str = "") -> None:
        super().__init__(f"{why}: {detail}" if detail else why)
        self.why = why


def _unchanged(arguments: Arguments) -> Arguments:
    return arguments


def _accept(_: Arguments) -> None:
    pass


@dataclass(frozen=True)
class RunsAs:
    """The old task runs as ``task``.

    ``parameters`` are the names of the old task's positional arguments, in order. ``convert`` returns the arguments of
    ``task`` from those of the old task, by name; ``check`` looks for what they need; both read only, and raise
    `CannotRun`. ``store`` gets the converted arguments and the message's id, and returns what is published; it may
    write, and it may run twice for one message.
    """

    task: str
    parameters: tuple[str, ...] = ()
    convert: Callable[[Arguments], Arguments] = _unchanged
    check: Callable[[Arguments], None] = _accept
    store: Callable[[Arguments, str], Arguments] | None = None


@dataclass(frozen=True)
class Dropped:
    """The old task's messages are acknowledged and counted."""

    because: str


@dataclass(frozen=True)
class Buried:
    """The old task's messages are kept as dead letters."""

    because: str


Becomes = RunsAs | Dropped | Buried
