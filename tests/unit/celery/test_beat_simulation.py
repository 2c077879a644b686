"""A day of three beats whose clock is stepped: every tick once, and at least once with kills and frozen beats."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import pytest
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from ami.celery.claimed_ticks import LOOK_SECONDS, PATIENCE_SECONDS
from ami.queues.models import TickClaim
from tests.support.beat_simulation import Sent, Simulation, VirtualClock
from tests.support.soak import soak

TASK = "ami.jobs.tasks.audit_data_integrity"
HOUR = 3600.0
HOURS = soak(2.4, 24)
EVERY = soak((60, 90, 600, 3600), (30, 60, 90, 300, 600, 3600))
MINUTES = (5, 60)
#: Forward and back in turn, at odd moments of the hour.
STEPS = [
    (at * HOUR + 1051, by)
    for at, by in soak(
        [(0, HOUR), (1, -HOUR)], [(1, HOUR), (4, -HOUR), (8, -HOUR), (12, HOUR), (15, HOUR), (19, -HOUR)]
    )
]
#: How late a beat may wake, twice, and what it takes to see a step.
SLACK = 6.0
#: What a beat waits at most: it looks for unsent ticks then.
LOOP_SECONDS = 20.0

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def entries() -> None:
    clock = VirtualClock()
    for seconds in EVERY:
        interval = IntervalSchedule.objects.create(every=seconds, period="seconds")
        PeriodicTask.objects.create(name=f"every {seconds}", task=TASK, interval=interval, last_run_at=clock.now())
    for minutes in MINUTES:
        crontab = CrontabSchedule.objects.create(minute=f"*/{minutes}" if minutes < 60 else "0")
        PeriodicTask.objects.create(name=f"cron {minutes}", task=TASK, crontab=crontab, last_run_at=clock.now())


def of(sent: list[Sent], name: str) -> list[Sent]:
    return [each for each in sent if each.entry == name]


def gaps(sent: list[Sent], name: str, end: float) -> list[float]:
    times = [0.0, *(each.elapsed for each in of(sent, name)), end]
    return [after - before for before, after in zip(times, times[1:], strict=False)]


def due(minutes: int, start: datetime) -> Iterator[float]:
    """Yield when a crontab is due, in seconds of monotonic time: what the wall clock repeats never, what it skips once.

    Written apart from Celery's arithmetic: the wall clock in whole seconds, and the latest that it has shown.
    """
    steps, offset, latest = dict(STEPS), 0.0, start.timestamp()
    for second in range(int(HOURS * HOUR)):
        offset += steps.get(second, 0)
        wall = start.timestamp() + offset + second
        if wall > latest:
            if wall // (minutes * 60) > latest // (minutes * 60):
                yield second
            latest = wall


def test_three_beats_send_each_tick_once_while_the_clock_is_stepped() -> None:
    end = HOURS * HOUR
    sent = Simulation(3, steps=STEPS).run(end)
    print(f"{len(sent)} messages")
    assert len({each.task_id for each in sent}) == len(sent)
    for seconds in EVERY:
        silent = gaps(sent, f"every {seconds}", end)
        assert max(silent) <= seconds + SLACK, f"every {seconds} s, and silent for {max(silent)} s"
        assert min(silent[:-1]) >= seconds - 0.02, f"every {seconds} s, and again after {min(silent)} s"
    for minutes in MINUTES:
        expected = list(due(minutes, VirtualClock().now()))
        times = [each.elapsed for each in of(sent, f"cron {minutes}")]
        assert [
            round(time - due) for time, due in zip(times, expected, strict=True) if not 0 <= time - due < SLACK
        ] == []
    assert not TickClaim.objects.exclude(is_sent=True, repeats=0).exists()


@pytest.mark.parametrize("seed", soak([1], [1, 2]))
def test_three_beats_that_are_killed_or_frozen_lose_no_tick(seed: int) -> None:
    end = HOURS * HOUR
    simulation = Simulation(
        3, seed, soak(0.05, 0.02), steps=STEPS, loop_seconds=LOOP_SECONDS, freeze_rate=soak(0.005, 0.002)
    )
    simulation.run(end)
    simulation.claims.kill_rate = simulation.freeze_rate = 0
    sent = simulation.run(end + 2 * (PATIENCE_SECONDS + LOOK_SECONDS + LOOP_SECONDS))
    kills, repeats = simulation.claims.kills, sum(TickClaim.objects.values_list("repeats", flat=True))
    assert set(kills) == {"claimed", "published", "marked"}
    assert {each.task_id for each in sent} == {tick.task_id for tick in simulation.claims.claimed}
    doubles = sum(count - 1 for count in Counter(each.task_id for each in sent).values())
    frozen = [seconds for seconds in simulation.frozen if seconds > PATIENCE_SECONDS]
    print(f"{len(sent)} messages, {kills} kills, {len(frozen)} frozen, {doubles} doubles, {repeats} sent again")
    assert frozen
    assert 0 < doubles <= kills["published"] + len(frozen)
    assert doubles <= repeats <= kills["claimed"] + kills["published"] + len(frozen)
    for seconds in EVERY:
        allowed = seconds + PATIENCE_SECONDS + LOOK_SECONDS + 2 * LOOP_SECONDS + SLACK
        assert max(gaps(sent, f"every {seconds}", end)) <= allowed
