"""One finding about the running deployment."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

LEVELS = ("error", "warning", "starting", "unseen")
#: The names of findings about a source that did not answer; the first two are what others may need.
DATABASE, BROKER = "database", "broker-unreachable"
AWAY = (DATABASE, BROKER, "storage", "management", "redis", "nats-away", "bucket", "source")
#: What keeps users' work from running, the worst first; within a level it comes before everything else.
HURTS_USERS = (
    *AWAY,
    "alarm",
    "blocked",
    "no-worker",
    "missing-queue",
    "arguments",
    "lost-binding",
    "no-consumer",
    "all-held",
    "parked",
    "calls-unsent",
    "stranded-calls",
    "unaccounted",
    "promise-broken",
    "worker-state",
    "no-beat",
    "late-tick",
    "paused",
    "disabled",
)
#: What is no error while the deployment is starting.
EXPECTED_AT_START = ("no-worker", "no-consumer", "no-beat")


@dataclass(frozen=True)
class Finding:
    """``level`` is error, warning, starting for what is missing yet, or unseen for what could not be checked.

    ``target`` is what it is about: a queue, a worker, a task, a server; empty for the deployment. Name and target are
    the same as long as it lasts, the sentence changes.
    """

    level: str
    name: str
    sentence: str
    target: str = ""


class Graded(Protocol):
    """A finding, or its figures in a snapshot."""

    @property
    def level(self) -> str: ...
    @property
    def name(self) -> str: ...


GradedT = TypeVar("GradedT", bound=Graded)


def gravest_first(found: Iterable[GradedT]) -> list[GradedT]:
    """Return findings by level, within a level what hurts users first."""
    order = {name: place for place, name in enumerate(HURTS_USERS)}
    return sorted(found, key=lambda each: (LEVELS.index(each.level), order.get(each.name, len(order))))
