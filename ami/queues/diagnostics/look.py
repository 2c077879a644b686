"""One look at the deployment: a source that does not answer is one error, and what follows from it is left out."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from django.db import Error

from ami.queues import broker_errors, database_errors
from ami.queues.diagnostics.finding import BROKER, DATABASE, Finding
from ami.transports.objectstore.storage.errors import UnfitStorageError

#: What is found elsewhere and follows from a source that is away.
FOLLOWS = {BROKER: ("late-tick", "calls-unsent")}

T = TypeVar("T")


class Look:
    """Collects findings. ``away`` are the sources that did not answer, by name; two looks may share them."""

    def __init__(self, away: dict[str, Finding] | None = None) -> None:
        self.found: list[Finding] = []
        self.away: dict[str, Finding] = {} if away is None else away

    def add(self, ask: Callable[[], Iterable[Finding]], *needs: str) -> None:
        """Ask, unless a source that it needs is away; what it yields before one goes away is kept."""
        self.read(lambda: self.found.extend(ask()), *needs)

    def read(self, ask: Callable[[], T], *needs: str) -> T | None:
        """Return what is asked for; None where a source that it needs is away, or goes away."""
        if self.away.keys() & set(needs):
            return None
        try:
            return ask()
        except Error as error:
            self.away.setdefault(DATABASE, Finding("error", "database", database_errors.sentence(error)))
        except UnfitStorageError as error:  # A broker's; it answers, and cannot be used.
            self.away.setdefault(BROKER, Finding("error", "storage", f"{error}."))
        except broker_errors.kinds() as error:
            self.away.setdefault(BROKER, Finding("error", "broker-unreachable", broker_errors.sentence(error)))
        return None

    def findings(self) -> list[Finding]:
        """Return the sources that are away, and what was found that does not follow from that."""
        follows = {name for source in self.away for name in FOLLOWS.get(source, ())}
        return [*self.away.values(), *(each for each in self.found if each.name not in follows)]
