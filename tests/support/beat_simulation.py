"""Hours of beats on a virtual clock: real schedulers on the test database, a wall clock that is stepped, kills."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

from django.db import connection
from django.db.models import DateTimeField, Value

from ami.celery import beat_entry, leases, scheduler, tick_claims
from ami.celery.tick_claims import Tick
from ami.queues.ticks import DatabaseTickClaims
from tests.support.beats import Published, new_beat, publishes

#: How late a beat may wake, in seconds.
LATE_SECONDS = 0.3
BEGIN = datetime(2026, 6, 1, tzinfo=UTC)


class VirtualClock:
    """``elapsed`` seconds of monotonic time; the wall clock is the same but for its steps."""

    def __init__(self, start: datetime = datetime(2026, 6, 1, 0, 0, 7, tzinfo=UTC)) -> None:
        self.elapsed, self._start, self._stepped = 0.0, start, timedelta()

    def now(self) -> datetime:
        return self._start + self._stepped + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return 1000.0 + self.elapsed

    def step(self, by: timedelta) -> None:
        self._stepped += by


class MachineClock:
    """The clock of one machine: the others' but for its own steps."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock, self._stepped = clock, timedelta()

    def now(self) -> datetime:
        return self._clock.now() + self._stepped

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def step(self, by: timedelta) -> None:
        self._stepped += by


def scheduler_on(clock: VirtualClock | MachineClock) -> type[scheduler.Scheduler]:
    """Return beat's scheduler, with every time from ``clock`` and without Celery's own entry, which is due at 04:00."""
    entry = type("VirtualEntry", (beat_entry.Entry,), {"clock": clock})
    others: dict[str, Any] = {"clock": clock, "Entry": entry, "install_default_entries": lambda *_: None}
    return type("VirtualScheduler", (scheduler.Scheduler,), others)


class Killed(BaseException):
    """Ends a beat where it stands, as SIGKILL does."""


class VirtualClaims(DatabaseTickClaims):
    """The claims in a database whose clock goes with the virtual one and is not stepped."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def now(self) -> Any:
        return Value(BEGIN + timedelta(seconds=self._clock.elapsed), DateTimeField())

    def lead(self, beat: str, seconds: float) -> bool:
        with mock.patch.object(leases, "Now", self.now):
            return super().lead(beat, seconds)


class DeadlyClaims(VirtualClaims):
    """The claims in the database; at seeded places the beat that uses them is killed: after its claim, after the
    publish and before the mark, or after the mark.
    """

    def __init__(self, random: random.Random, kill_rate: float, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.claimed: list[Tick] = []
        self.claimed_after: list[float] = []
        self.kills: dict[str, int] = {}
        self.kill_rate = kill_rate
        self.freeze: Callable[[], None] = lambda: None
        self._random = random

    def claim(self, tick: Tick, beat: str, *, is_first: bool) -> bool:
        self.freeze()
        won = super().claim(tick, beat, is_first=is_first)
        if won:
            self.claimed.append(tick)
            self.claimed_after.append(self._clock.elapsed)
            self.freeze()
            self._kill("claimed")
        return won

    def claim_again(self, tick: Tick, beat: str) -> Tick | None:
        self.freeze()
        return super().claim_again(tick, beat)

    def mark_sent(self, tick: Tick) -> None:
        self.freeze()
        self._kill("published")
        super().mark_sent(tick)
        self._kill("marked")

    def _kill(self, place: str) -> None:
        if self._random.random() < self.kill_rate:
            self.kills[place] = self.kills.get(place, 0) + 1
            raise Killed(place)


class KillsOnce(DeadlyClaims):
    """Kills the first beat that comes to ``place``."""

    def __init__(self, place: str, clock: VirtualClock) -> None:
        super().__init__(None, 0, clock)  # type: ignore[arg-type]
        self._place = place

    def _kill(self, place: str) -> None:
        if place == self._place and not self.kills:
            self.kills[place] = 1
            raise Killed(place)


@dataclass
class Sent:
    """One message, and when: seconds of monotonic time, and the wall clock."""

    entry: str
    task_id: str
    elapsed: float
    wall: datetime


@dataclass
class Simulation:
    """``count`` beats on machines of their own.

    ``steps``: when, in seconds, and by how many seconds all wall clocks are stepped. ``steps_of_one``: those of the
    first machine alone. ``loop_seconds``: what a beat waits at most, as CELERY_BEAT_MAX_LOOP_INTERVAL. ``outages``:
    when all beats are killed, and for how long none is started. ``freeze_rate``: how often a beat stands still, between
    ticks and at each statement of a claim, while the others tick; for ``freeze_seconds`` at most.
    """

    count: int = 2
    seed: int = 1
    kill_rate: float = 0.0
    steps: Sequence[tuple[float, float]] = ()
    steps_of_one: Sequence[tuple[float, float]] = ()
    loop_seconds: float = 300.0
    outages: Sequence[tuple[float, float]] = ()
    freeze_rate: float = 0.0
    freeze_seconds: float = 100.0
    clock: VirtualClock = field(default_factory=VirtualClock)
    sent: list[Sent] = field(default_factory=list)
    frozen: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.claims = DeadlyClaims(self._random, self.kill_rate, self.clock)
        self.claims.freeze = self._freeze
        self.clocks = [MachineClock(self.clock) for _ in range(self.count)]
        self._kinds = [scheduler_on(clock) for clock in self.clocks]
        self._events = sorted(
            [(at, self._step, (by, self.clock)) for at, by in self.steps]
            + [(at, self._step, (by, self.clocks[0])) for at, by in self.steps_of_one]
            + [(at, self._end_all, (seconds,)) for at, seconds in self.outages],
            key=lambda event: event[0],
        )
        self._started, self._ticking, self._is_frozen = 0, -1, False
        self._beats: dict[int, tuple[float, Any]] = {}
        self._published: list[Published] = []

    def run(self, seconds: float) -> list[Sent]:
        """Run until so many seconds after the begin; return all that was sent.

        Every beat that is killed starts again within twenty seconds.
        """
        with quick_database(), connected(self.claims), publishes() as self._published:
            self._beats = self._beats or {number: (self._soon(20), None) for number in range(self.count)}
            while self.clock.elapsed < seconds:
                at = min(at for at, _ in self._beats.values())
                if self._events and self._events[0][0] <= at:
                    at, event, values = self._events.pop(0)
                    self.clock.elapsed = max(at, self.clock.elapsed)
                    event(*values)
                else:
                    self._tick_next()
        return self.sent

    def _step(self, by: float, clock: VirtualClock | MachineClock) -> None:
        clock.step(timedelta(seconds=by))
        # Each beat wakes in time and finds the step.
        self._beats = {each: (min(at, self._soon(5)), beat) for each, (at, beat) in self._beats.items()}

    def _end_all(self, seconds: float) -> None:
        self._beats = {each: (self._soon(20) + seconds, None) for each in self._beats}

    def _soon(self, most: float) -> float:
        return self.clock.elapsed + self._random.uniform(0, most)

    def _tick_next(self, without: int | None = None) -> None:
        number = min(self._beats.keys() - {without}, key=lambda each: self._beats[each][0])
        at, beat = self._beats[number]
        self.clock.elapsed = max(at, self.clock.elapsed)
        before, self._ticking = self._ticking, number
        self._beats[number] = self._tick(number, beat)
        self._ticking = before

    def _tick(self, number: int, beat: Any) -> tuple[float, Any]:
        try:
            if beat is None:
                self._started += 1
                beat = new_beat(self._kinds[number], max_interval=self.loop_seconds, name=f"beat-{self._started}")
            waits = beat.tick()
        except Killed:
            return self._soon(20), None
        finally:
            self._collect()
        late = self._random.uniform(0, LATE_SECONDS) if waits > 0 else 0.001
        return self.clock.elapsed + max(waits, 0) + late + self._stands_still(), beat

    def _collect(self) -> None:
        for each in self._published:
            self.sent.append(Sent(each.entry, each.task_id, self.clock.elapsed, self.clock.now()))
        self._published.clear()

    def _stands_still(self) -> float:
        """Return for how many seconds a beat does, mostly none."""
        if not self.freeze_rate or self._random.random() >= self.freeze_rate:
            return 0.0
        self.frozen.append(self._random.uniform(0, self.freeze_seconds))
        return self.frozen[-1]

    def _freeze(self) -> None:
        """Let the other beats tick while this one stands still, in the middle of its tick; one at a time."""
        if self._is_frozen or not (seconds := self._stands_still()):
            return
        self._collect()
        self._is_frozen, until, number = True, self.clock.elapsed + seconds, self._ticking
        while min([at for each, (at, _) in self._beats.items() if each != number], default=until) < until:
            self._tick_next(without=number)
        self._is_frozen, self.clock.elapsed = False, max(until, self.clock.elapsed)


@contextmanager
def quick_database() -> Iterator[None]:
    """Keep the connection over ticks and wait for no disk: what is slow about hours of them."""
    settings = connection.settings_dict
    connection.close()
    age, settings["CONN_MAX_AGE"] = settings["CONN_MAX_AGE"], None
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous=OFF" if connection.vendor == "sqlite" else "SET synchronous_commit=off")
    try:
        yield
    finally:
        settings["CONN_MAX_AGE"] = age
        connection.close()


@contextmanager
def connected(claims: tick_claims.TickClaims | None) -> Iterator[None]:
    """Connect other claims to the port for a while."""
    before = tick_claims.connected()
    tick_claims.connect(claims)
    try:
        yield
    finally:
        tick_claims.connect(before)
