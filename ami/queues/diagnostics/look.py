"""One look at the deployment: a source that does not answer is one error, and what follows from it is left out."""

from collections.abc import Callable, Iterable

from django.db import Error

from ami.queues import broker_errors, database_errors
from ami.queues.diagnostics.finding import Finding

#: The names of findings about a source that did not answer; the first two are what others may need.
DATABASE, BROKER = "database", "broker-unreachable"
AWAY = (DATABASE, BROKER, "management", "redis", "nats-away", "bucket", "source")
#: What is found elsewhere and follows from a source that is away.
FOLLOWS = {BROKER: ("late-tick", "calls-unsent")}
ORDER = {"error": 0, "warning": 1, "unseen": 2}


class Look:
    """Collects findings. ``away`` are the sources that did not answer, by name; two looks may share them."""

    def __init__(self, away: dict[str, Finding] | None = None) -> None:
        self.found: list[Finding] = []
        self.away: dict[str, Finding] = {} if away is None else away

    def add(self, ask: Callable[[], Iterable[Finding]], *needs: str) -> None:
        """Ask, unless a source that it needs is away; what it yields before one goes away is kept."""
        if self.away.keys() & set(needs):
            return
        try:
            self.found.extend(ask())
        except Error as error:
            self.away.setdefault(DATABASE, Finding("error", "database", database_errors.sentence(error)))
        except broker_errors.kinds() as error:
            self.away.setdefault(BROKER, Finding("error", "broker-unreachable", broker_errors.sentence(error)))

    def findings(self) -> list[Finding]:
        follows = {name for source in self.away for name in FOLLOWS.get(source, ())}
        return gravest_first([*self.away.values(), *(each for each in self.found if each.name not in follows)])


def gravest_first(found: Iterable[Finding]) -> list[Finding]:
    """Return findings by level, of the errors those first that say what did not answer."""
    return sorted(found, key=lambda each: (ORDER[each.level], each.level == "error" and each.name not in AWAY))
