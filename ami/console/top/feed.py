"""Reads the shared snapshot in a thread, so that the screen answers while a database or broker does not."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connections

from ami.console.top.faults import without_database
from ami.queues.letters import found
from ami.queues.letters.found import Group
from ami.queues.letters.selection import Selection
from ami.queues.models import Replay
from ami.telemetry.snapshots import shared
from ami.telemetry.snapshots.shape import Snapshot

FRESH_SECONDS, EVERY_SECONDS = 1.5, 2.0
MOST_CAUSES, MOST_REPLAYS = 100, 3


@dataclass(frozen=True)
class Figures:
    """What was read last, and why nothing newer could be. ``read_at`` and ``asked_at`` are by the monotonic clock; the
    second is when the look began that has not ended, None between two looks.

    ``letters`` are the causes of ``letters_of``, a queue or empty for all; None until they were read.
    """

    snapshot: Snapshot | None = None
    read_at: float = 0.0
    faults: tuple[str, ...] = ()
    asked_at: float | None = None
    letters: tuple[Group, ...] | None = None
    letters_of: str = ""
    replays: tuple[Replay, ...] = ()


class Feed:
    """Reads every two seconds, and calls ``changed`` in its own thread after each look."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._wanted, self._ended = threading.Event(), threading.Event()
        self._letters_of: str | None = None
        self._is_fresh_wanted = False
        self.figures = Figures()
        self._thread = threading.Thread(target=self._run, name="top-figures", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 1.0) -> None:
        """End the thread; one that waits for a database that does not answer ends with the process."""
        self._ended.set()
        self._wanted.set()
        self._thread.join(seconds)

    def refresh(self) -> None:
        """Read again now, past what others have read: an operation has changed something."""
        self._is_fresh_wanted = True
        self._wanted.set()

    def want_letters(self, queue: str | None) -> None:
        """Read the causes of a queue's letters as well (empty: of all queues); None for no more."""
        if queue != self._letters_of:
            self._letters_of = queue
            self._wanted.set()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._wanted.clear()
                self._read()
                self._changed()
                self._wanted.wait(EVERY_SECONDS)
        finally:
            connections.close_all()  # This thread's.

    def _read(self) -> None:
        age, self._is_fresh_wanted = 0.0 if self._is_fresh_wanted else FRESH_SECONDS, False
        self.figures = replace(self.figures, asked_at=time.monotonic())
        try:
            if not age:
                shared.forget()
            snapshot = shared.current(age)
            if self.figures.snapshot is None or snapshot.version != self.figures.snapshot.version:
                self.figures = replace(self.figures, snapshot=snapshot, read_at=time.monotonic())
            if self._letters_of is not None:
                self._read_letters(self._letters_of)
            self.figures = replace(self.figures, faults=(), asked_at=None)
        except DatabaseError as error:
            connections.close_all()
            self.figures = replace(self.figures, faults=without_database(error), asked_at=None)

    def _read_letters(self, queue: str) -> None:
        buried = {row.queue: row.dead_letter_queue for row in settings.ANTENNA_TOPOLOGY.workloads}
        groups = found.groups(Selection(queue=buried.get(queue, "")).rows(), MOST_CAUSES)
        running = Replay.objects.filter(state=Replay.State.RUNNING).order_by("-pk")[:MOST_REPLAYS]
        self.figures = replace(self.figures, letters=tuple(groups), letters_of=queue, replays=tuple(running))
