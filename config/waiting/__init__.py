"""Waits until every service that a process needs answers, and prints what it waits for."""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

LOOK_SECONDS = 1.0
REPEAT_SECONDS = 10.0
#: A name server may be silent for longer than a person waits for the first line.
SILENT_SECONDS = 1.0


@dataclass(frozen=True)
class Need:
    """Something that must answer: its name, where it is, and how to ask it, which returns why not, or nothing.

    Reasons with the words ``once`` are printed the first time only, for what lasts until a person acts.
    """

    name: str
    where: str
    ask: Callable[[], str]
    answers: str = "answers"
    once: str = ""


@dataclass
class Probe:
    """A need that its own thread checks each second, and the last line printed about it."""

    need: Need
    began: float
    why: str = "no answer yet"
    answered: bool = False
    said: str = ""
    said_at: float = 0.0
    tried: bool = False
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        # A daemon: a thread that hangs in a library ends with the process.
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def _ask(self) -> None:
        while why := self.need.ask():
            self.why, self.tried = why, True
            time.sleep(LOOK_SECONDS)
        self.answered = True

    @property
    def sentence(self) -> str:
        """The need, and why it does not answer."""
        return f"{self.need.name} {self.need.where}: {self.why}"

    def report(self, now: float) -> bool:
        """Print why it does not answer, when that changes and every ten seconds; return whether it answers."""
        if self.answered:
            if self.said:
                name = self.need.name[0].upper() + self.need.name[1:]
                say(f"{name} {self.need.answers} after {now - self.began:.0f} s")
            return True
        if (self.tried or now - self.began >= SILENT_SECONDS) and self._is_new(now):
            self.said, self.said_at = self.why, now
            say(f"Waiting for {self.sentence}")
        return False

    def _is_new(self, now: float) -> bool:
        if self.need.once and self.need.once in self.why and self.need.once in self.said:
            return False
        return self.why != self.said or now - self.said_at >= REPEAT_SECONDS


def wait(needs: Iterable[Need], began: float, until: float) -> list[str]:
    """Check all needs at the same time; return a sentence for each that does not answer by ``until`` (monotonic)."""
    waiting = [Probe(need, began) for need in needs]
    while waiting:
        waiting[0].thread.join(0.1)
        now = time.monotonic()
        waiting = [probe for probe in waiting if not probe.report(now)]
        if now >= until:
            break
    return [probe.sentence for probe in waiting]


def say(line: str) -> None:
    """Print a line where the command's own errors will stand."""
    print(line, file=sys.stderr, flush=True)
