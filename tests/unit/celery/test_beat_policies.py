"""A day of three beats: killed, frozen, away, their clocks stepped; each entry's policy for late ticks."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from ami.celery.claimed_ticks import PATIENCE_SECONDS
from ami.celery.tick_claims import ALL, MISFIRES, Tick
from ami.queues.models import TickClaim
from tests.support.beat_simulation import Simulation, VirtualClock
from tests.support.soak import soak

TASK = "ami.jobs.tasks.audit_data_integrity"
HOUR = 3600.0
HOURS = soak(1.2, 24)
EVERY, MINUTES = (90, 600), (5, 60)
STEPS = [
    (at * HOUR + 1051, by)
    for at, by in soak(
        [(0, HOUR), (0.5, -HOUR)], [(1, HOUR), (4, -HOUR), (8, -HOUR), (12, HOUR), (15, HOUR), (19, -HOUR)]
    )
]
#: The clock of the first machine: of the same time as the others', ahead of them, behind them.
STEPS_OF_ONE = [
    (at * HOUR + 401, by)
    for at, by in soak([(0.2, HOUR), (0.9, -2 * HOUR)], [(3, HOUR), (6, -HOUR), (7, -HOUR), (14, 2 * HOUR)])
]
OUTAGES = [(at * HOUR + 77, seconds) for at, seconds in soak([(0.7, 400)], [(2, 900), (10, 5000), (17, 40)])]
#: Until another beat has sent what a killed one has left.
SETTLES = 120.0

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(soak(300, 3600))]


@pytest.fixture(autouse=True)
def entries() -> None:
    begin = VirtualClock().now()
    for misfire in MISFIRES:
        made = []
        for seconds in EVERY:
            interval, _ = IntervalSchedule.objects.get_or_create(every=seconds, period="seconds")
            made.append(PeriodicTask(name=f"{misfire} every {seconds}", interval=interval))
        for minutes in MINUTES:
            crontab, _ = CrontabSchedule.objects.get_or_create(minute=f"*/{minutes}" if minutes < 60 else "0")
            made.append(PeriodicTask(name=f"{misfire} cron {minutes}", crontab=crontab))
        for entry in made:
            entry.task, entry.last_run_at = TASK, begin
            entry.save()
            TickClaim.objects.create(entry=entry, misfire=misfire)


def due_times(name: str, begin: datetime, until: datetime) -> Iterator[datetime]:
    """Yield every due time that the wall clock has reached, written apart from Celery's arithmetic."""
    kind, number = name.split()[1:]
    every = timedelta(seconds=int(number)) if kind == "every" else timedelta(minutes=int(number))
    first = begin + every
    if kind == "cron":
        first = datetime.fromtimestamp(
            (begin.timestamp() // every.total_seconds() + 1) * every.total_seconds(), begin.tzinfo
        )
    while first <= until:
        yield first
        first += every


@pytest.mark.parametrize("seed", soak([1], [1, 2, 3]))
def test_each_due_time_is_sent_at_most_once_and_exactly_once_where_all_are_made_up(seed: int) -> None:
    simulation = Simulation(
        3, seed, soak(0.05, 0.02), STEPS, STEPS_OF_ONE, outages=OUTAGES, freeze_rate=soak(0.01, 0.003)
    )
    begin, end = simulation.clock.now(), HOURS * HOUR
    simulation.run(end)
    simulation.claims.kill_rate = simulation.freeze_rate = 0
    sent = simulation.run(end + SETTLES)
    latest = max(clock.now() for clock in simulation.clocks)
    names = dict(PeriodicTask.objects.values_list("pk", "name"))
    claimed: dict[str, list[Tick]] = {}
    after = {
        tick.identity: at for tick, at in zip(simulation.claims.claimed, simulation.claims.claimed_after, strict=True)
    }
    for tick in simulation.claims.claimed:
        claimed.setdefault(names[tick.entry], []).append(tick)
    kills, frozen = simulation.claims.kills, simulation.frozen
    print(f"{len(sent)} messages, {len(frozen)} frozen, {kills}, {[(n, len(c)) for n, c in claimed.items()]}")
    assert set(kills) == {"claimed", "published", "marked"}
    assert max(frozen) > PATIENCE_SECONDS
    assert {each.task_id for each in sent} == {tick.task_id for tick in simulation.claims.claimed}
    for name, ticks in claimed.items():
        times = [tick.claimed_at for tick in ticks if tick.claimed_at]
        if name.startswith(ALL):
            # What was late when the clock was put back is due when it shows those times again.
            expected = list(due_times(name, begin, max(latest, times[-1])))
            assert times == expected[: len(times)]
            assert len(expected) - len(times) <= 1
        elif "cron" in name:
            period = 60 * int(name.split()[2])
            slots = [int(at.timestamp() // period) for at in times]
            assert slots == sorted(set(slots)), name
        else:
            at, every = [after[tick.identity] for tick in ticks], int(name.split()[2])
            early = [round(two - one, 1) for one, two in zip(at, at[1:], strict=False) if two - one < every - 0.1]
            assert not early, f"{name}: again after {early}"
