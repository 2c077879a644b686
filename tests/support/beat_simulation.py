"""Hours of beats on a virtual clock: real schedulers on the test database, a wall clock that is stepped, kills."""

import math
import random
from collections.abc import Iterator, Sequence
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


def scheduler_on(clock: VirtualClock, *, elects: bool = False) -> type[scheduler.Scheduler]:
    """Return beat's scheduler, with every time from ``clock`` and without Celery's own entry, which is due at 04:00.

    Unless it ``elects``, each beat believes that it leads, as one does that was frozen for long.
    """
    entry = type("VirtualEntry", (beat_entry.Entry,), {"clock": clock})
    others: dict[str, Any] = {"clock": clock, "Entry": entry, "install_default_entries": lambda *_: None}
    if not elects:
        others |= {"_is_leader": lambda _: True, "renew_seconds": math.inf}
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
        self.leads: list[tuple[float, str]] = []
        self.claimed: list[Tick] = []
        self.claimed_after: list[float] = []
        self.kills: dict[str, int] = {}
        self.kill_rate = kill_rate
        self._random = random

    def lead(self, beat: str, seconds: float) -> bool:
        """Keep in ``leads`` when, in seconds, another beat began to lead."""
        leads = super().lead(beat, seconds)
        if leads and (not self.leads or self.leads[-1][1] != beat):
            self.leads.append((self._clock.elapsed, beat))
        return leads

    def claim(self, tick: Tick, beat: str, *, is_first: bool) -> bool:
        won = super().claim(tick, beat, is_first=is_first)
        if won:
            self.claimed.append(tick)
            self.claimed_after.append(self._clock.elapsed)
            self._kill("claimed")
        return won

    def mark_sent(self, tick: Tick) -> None:
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
    """``count`` beats on one clock.

    ``steps``: when, in seconds, and by how many seconds the wall clock is stepped. ``loop_seconds``: what a beat waits
    at most, as CELERY_BEAT_MAX_LOOP_INTERVAL. ``elects``: one leads, otherwise each believes that it does. ``outages``:
    when all beats are killed, and for how long none is started.
    """

    count: int = 2
    seed: int = 1
    kill_rate: float = 0.0
    steps: Sequence[tuple[float, float]] = ()
    loop_seconds: float = 300.0
    elects: bool = False
    outages: Sequence[tuple[float, float]] = ()
    clock: VirtualClock = field(default_factory=VirtualClock)
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.claims = DeadlyClaims(self._random, self.kill_rate, self.clock)
        self._kind = scheduler_on(self.clock, elects=self.elects)
        self._started = 0
        self._beats: dict[int, tuple[float, Any]] = {}

    def kill(self, name: str) -> None:
        """Kill a beat; none is started in its place."""
        [number] = [each for each, (_, beat) in self._beats.items() if beat and beat._ticks.name == name]
        del self._beats[number]

    def run(self, seconds: float) -> list[Sent]:
        """Run until so many seconds after the begin; return all that was sent.

        Every beat that is killed starts again within twenty seconds.
        """
        steps, outages = (
            [each for each in sorted(all_) if each[0] > self.clock.elapsed] for all_ in (self.steps, self.outages)
        )
        with quick_database(), connected(self.claims), publishes() as published:
            beats = self._beats = self._beats or {number: (self._soon(20), None) for number in range(self.count)}
            while self.clock.elapsed < seconds:
                number = min(beats, key=lambda each: beats[each][0])
                at, beat = beats[number]
                if steps and steps[0][0] <= at:
                    self.clock.elapsed, by = steps.pop(0)
                    self.clock.step(timedelta(seconds=by))
                    # Each beat wakes in time and finds the step.
                    beats |= {each: (min(at, self._soon(5)), beat) for each, (at, beat) in beats.items()}
                    continue
                if outages and outages[0][0] <= at:
                    self.clock.elapsed, without = outages.pop(0)
                    beats |= {each: (self._soon(20) + without, None) for each in beats}
                    continue
                self.clock.elapsed = max(at, self.clock.elapsed)
                beats[number] = self._tick(beat, published)
        return self.sent

    def _soon(self, most: float) -> float:
        return self.clock.elapsed + self._random.uniform(0, most)

    def _tick(self, beat: Any, published: list[Published]) -> tuple[float, Any]:
        try:
            if beat is None:
                self._started += 1
                beat = new_beat(self._kind, max_interval=self.loop_seconds, name=f"beat-{self._started}")
            waits = beat.tick()
        except Killed:
            return self._soon(20), None
        finally:
            for each in published:
                self.sent.append(Sent(each.entry, each.task_id, self.clock.elapsed, self.clock.now()))
            published.clear()
        late = self._random.uniform(0, LATE_SECONDS) if waits > 0 else 0.001
        return self.clock.elapsed + max(waits, 0) + late, beat


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
