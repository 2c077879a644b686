"""What is shown and asked, changed by each key; an operation runs beside the screen."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from django.db import Error as DatabaseError
from django.db import connections

from ami.console.top import keys, levers
from ami.console.top.cells import BAD, GOOD, WARN
from ami.console.top.faults import database_fault
from ami.console.top.feed import Feed, Figures
from ami.console.top.levers import Lever
from ami.queues import broker_errors
from ami.queues.letters.found import Group
from ami.queues.refusals import Refused
from ami.queues.wishes import LONGEST_WHY
from ami.telemetry.snapshots.shape import QueueFigures

QUEUES, WORKERS, LETTERS, FINDINGS, HELP = "queues", "workers", "letters", "findings", "help"
PAGE = 10
MOVES = {
    keys.UP: -1,
    "k": -1,
    keys.DOWN: 1,
    "j": 1,
    keys.PAGE_UP: -PAGE,
    keys.PAGE_DOWN: PAGE,
    keys.HOME: -10_000,
    keys.END: 10_000,
}


@dataclass
class Prompt:
    """A lever that is asked for: first the reason, then whether to go on."""

    lever: Lever
    why: str = ""
    is_confirming: bool = False

    @property
    def question(self) -> str:
        """What the last line asks."""
        if self.is_confirming:
            return f"{self.lever.name.capitalize()}? [y/N]"
        return f"Reason to {self.lever.name} (Esc: leave it): {self.why}"


class Session:
    """The state of the screen. ``changed`` is called when an operation has ended, in another thread."""

    def __init__(self, feed: Feed, changed: Callable[[], None]) -> None:
        self._feed, self._changed = feed, changed
        self._operations = ThreadPoolExecutor(1, "top-operation")
        self.page, self.is_ended = QUEUES, False
        self.queue, self.cause, self.letters_of = "", "", ""
        self.scroll = 0
        self.prompt: Prompt | None = None
        self.message, self.message_style = "", ""

    @property
    def figures(self) -> Figures:
        return self._feed.figures

    @property
    def queues(self) -> Sequence[QueueFigures]:
        snapshot = self.figures.snapshot
        return snapshot.queues if snapshot else ()

    @property
    def selected_queue(self) -> QueueFigures | None:
        """The selected queue, the first one until another was."""
        return next((queue for queue in self.queues if queue.queue == self.queue), next(iter(self.queues), None))

    @property
    def causes(self) -> Sequence[Group]:
        figures = self.figures
        return figures.letters or () if figures.letters_of == self.letters_of else ()

    @property
    def selected_cause(self) -> Group | None:
        return next((group for group in self.causes if group.cause == self.cause), next(iter(self.causes), None))

    def close(self) -> None:
        """Wait for an operation that has begun."""
        self._operations.shutdown()

    def press(self, key: str) -> None:
        """Do what a key says."""
        if self.prompt:
            self._answer(self.prompt, key)
            return
        self.message = ""
        if key in MOVES:
            self._move(MOVES[key])
        elif key in ("q", keys.CLOSED):
            self.is_ended = True
        elif key in (keys.ESCAPE, keys.ERASE):
            self._open(QUEUES)
        elif key in ("w", "f", "?"):
            page = {"w": WORKERS, "f": FINDINGS, "?": HELP}[key]
            self._open(QUEUES if self.page == page else page)
        elif key == "l":
            self.letters_of = self.selected_queue.queue if self.selected_queue else ""
            self._open(QUEUES if self.page == LETTERS else LETTERS)
        elif self.page == LETTERS:
            self._press_on_letters(key)
        elif self.page == QUEUES and key in ("p", "r"):
            self._ask_queue(key)

    def _open(self, page: str) -> None:
        self.page, self.scroll = page, 0
        self._feed.want_letters(self.letters_of if page == LETTERS else None)

    def _move(self, step: int) -> None:
        if self.page == QUEUES:
            names = [queue.queue for queue in self.queues]
            self.queue = _moved(names, self.selected_queue.queue if self.selected_queue else "", step)
        elif self.page == LETTERS:
            causes = [group.cause for group in self.causes]
            self.cause = _moved(causes, self.selected_cause.cause if self.selected_cause else "", step)
        else:
            self.scroll = max(0, self.scroll + step)  # The screen stops it at the last line.

    def _press_on_letters(self, key: str) -> None:
        if key == "a":
            chosen = self.selected_queue
            self.letters_of = "" if self.letters_of or chosen is None else chosen.queue
            self._open(LETTERS)
        elif key in ("r", keys.ENTER):
            if self.selected_cause:
                self.prompt = Prompt(levers.replay(self.selected_cause, self.letters_of))
            else:
                self._say("There is no letter to replay.", WARN)

    def _ask_queue(self, key: str) -> None:
        chosen = self.selected_queue
        if chosen is None:
            self._say("No queue has been read yet.", WARN)
        elif key == "p" and chosen.paused:
            self._say(f"{chosen.queue} is paused already; r resumes it.", WARN)
        elif key == "r" and not chosen.paused:
            self._say(f"{chosen.queue} is not paused. Dead letters are replayed from their page: l.", WARN)
        else:
            self.prompt = Prompt((levers.pause if key == "p" else levers.resume)(chosen.queue))

    def _answer(self, prompt: Prompt, key: str) -> None:
        if key in (keys.ESCAPE, keys.CLOSED) or (prompt.is_confirming and key not in ("y", "Y")):
            self.prompt = None
            self._say("Nothing was changed.", "")
        elif prompt.is_confirming:
            self.prompt = None
            self._say(f"{prompt.lever.name} ...", "")
            self._operations.submit(self._run, prompt.lever, prompt.why.strip())
        elif key == keys.ENTER:
            prompt.is_confirming = True
        elif key == keys.ERASE:
            prompt.why = prompt.why[:-1]
        elif key == keys.CLEAR:
            prompt.why = ""
        elif len(key) == 1 and len(prompt.why) < LONGEST_WHY:
            prompt.why += key

    def _run(self, lever: Lever, why: str) -> None:
        try:
            self._say(lever.run(why), GOOD)
        except _expected() as error:
            said = database_fault(error) if isinstance(error, DatabaseError) else str(error)
            self._say(f"{lever.name} was not done: {said}", BAD)
        finally:
            connections.close_all()  # This thread's.
            self._feed.refresh()
            self._changed()

    def _say(self, message: str, style: str) -> None:
        self.message, self.message_style = message, style


def _expected() -> tuple[type[BaseException], ...]:
    return (Refused, DatabaseError, *broker_errors.kinds())


def _moved(names: Sequence[Any], current: Any, step: int) -> Any:
    if not names:
        return current
    place = names.index(current) if current in names else 0
    return names[max(0, min(len(names) - 1, place + step))]
