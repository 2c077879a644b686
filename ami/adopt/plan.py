"""Plans what becomes of one message of an old queue. Reads only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django.db import DataError

from ami.adopt.becomes import Arguments, Becomes, Buried, CannotRun, Dropped, RunsAs
from ami.adopt.old_message import OldMessage, by_name
from ami.celery.task_message import MalformedMessage, describe, has_expired, seconds_ahead
from ami.topology.router import ORIGIN_HEADER
from ami.topology.topology import Topology
from ami.topology.workload import Workload

EXPIRED = "it has expired; a worker would drop it as well"
UNKNOWN = "no task of this name is known"
NOT_A_TASK = "it is not a task message of Celery's protocol 2"
UNREADABLE = "its properties cannot be read"

#: What code and the database raise about values of a wrong shape or size, or too deeply nested.
OF_THE_MESSAGE = (ArithmeticError, AttributeError, DataError, LookupError, RecursionError, TypeError, ValueError)

#: What takes the place of the name where a message has none.
NAMELESS = "?"


class Outcome(StrEnum):
    """What becomes of a message."""

    RUNS = "runs"
    DROPPED = "dropped"
    BURIED = "dead letter"


@dataclass(frozen=True)
class Call:
    """What is published instead of a message's body: ``arguments`` by name, after ``store`` where there is one."""

    arguments: Arguments
    embed: dict[str, Any]
    entry: RunsAs


@dataclass(frozen=True)
class Plan:
    """One message's: ``task`` is its old name, ``runs_as`` the name that its copy gets, ``home`` whose queue takes it.

    ``call`` is None where the body stays as it is. ``why`` is counted; ``reason`` is in the dead letter.
    """

    outcome: Outcome
    task: str
    runs_as: str = ""
    home: Workload | None = None
    why: str = ""
    reason: str = ""
    call: Call | None = field(default=None, compare=False)

    @property
    def queue(self) -> str:
        """The queue where its copy goes; empty for a dropped message."""
        if self.home is None:
            return ""
        return self.home.dead_letter_queue if self.outcome is Outcome.BURIED else self.home.queue


@dataclass(frozen=True)
class Planner:
    """Plans by the table of old tasks, this application's own tasks, and the topology.

    ``max_body_bytes`` bounds a body when it is decompressed.
    """

    topology: Topology
    becomes: Mapping[str, Becomes]
    max_body_bytes: int
    registered: Collection[str]

    def plan(self, message: OldMessage) -> Plan:
        """Return what becomes of a message."""
        if message.unreadable:
            return self.buried(message, UNREADABLE, f"{UNREADABLE}: {message.unreadable}")
        name = message.task
        if not name:
            return self.buried(message, NOT_A_TASK)
        becomes = self.becomes.get(name) or (RunsAs(name) if name in self.registered else None)
        try:
            if isinstance(becomes, (RunsAs, Dropped)) and has_expired(message):
                return Plan(Outcome.DROPPED, name, why=EXPIRED)
            if isinstance(becomes, RunsAs):
                seconds_ahead(message)
        except MalformedMessage as error:
            return self.buried(message, "a header is malformed", str(error))
        if isinstance(becomes, Dropped):
            return Plan(Outcome.DROPPED, name, why=becomes.because)
        if becomes is None or isinstance(becomes, Buried):
            return self.buried(message, becomes.because if becomes else UNKNOWN)
        return self._runs(message, becomes)

    def _runs(self, message: OldMessage, entry: RunsAs) -> Plan:
        if entry.task not in self.registered:
            return self.buried(message, f"this application has no task {entry.task}")
        if message.task not in self.becomes:
            return Plan(Outcome.RUNS, message.task, entry.task, self._home(message, entry.task))
        call = None
        try:
            args, kwargs, embed = message.decoded(self.max_body_bytes)
            call = Call(entry.convert(by_name(args, kwargs, entry.parameters)), embed, entry)
            entry.check(call.arguments)
        except CannotRun as error:
            return self.buried(message, error.why, str(error), call)
        except OF_THE_MESSAGE as error:  # A message like that would stop the adoption again and again.
            return self.buried(message, "its arguments are not those of its task", describe(error))
        if entry.task == message.task and entry.store is None and call.arguments == kwargs and not args:
            call = None
        return Plan(Outcome.RUNS, message.task, entry.task, self._home(message, entry.task), call=call)

    def buried(self, message: OldMessage, why: str, reason: str = "", call: Call | None = None) -> Plan:
        """Return the plan of a dead letter; one whose arguments were converted can be replayed as the new task."""
        name = message.task or NAMELESS
        runs_as = call.entry.task if call else name
        return Plan(Outcome.BURIED, name, runs_as, self._home(message, runs_as), why, reason or why, call)

    def _home(self, message: OldMessage, task: str) -> Workload:
        """Return the workload where a task belongs today."""
        origin = message.headers.get(ORIGIN_HEADER)
        place = self.topology.place(task, origin if isinstance(origin, str) else None)
        return self.topology.workload(place.queue)
