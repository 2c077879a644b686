"""The governor's view of a pool: places that cool down or open one by one, and the sizes of running children."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.concurrency.solo import TaskPool as SoloPool
from celery.worker import state

from ami.governor import pool_adapters as module
from ami.governor.pool_adapters import PoolAdapter, PreforkPoolAdapter
from ami.governor.settings import GovernorSettings
from tests.support.governor.prefork_pool import MIB, World


class Clock:
    """A clock that stands still, and the delayed calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.later = 1000.0, []
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now))

    def call_later(self, seconds: float, function: Any) -> None:
        self.later.append((self.now + seconds, function))

    def passes(self, seconds: float) -> None:
        self.now += seconds
        due = [function for at, function in self.later if at <= self.now]
        self.later = [(at, function) for at, function in self.later if at > self.now]
        for function in due:
            function()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def adapter_for(clock: Clock, changes: list[int], **settings: float) -> PoolAdapter:
    """Return an adapter of three threads; ``changes`` collects its number of places at each change."""
    adapter = PoolAdapter(SimpleNamespace(limit=3), GovernorSettings(**settings), 1, clock.call_later)
    adapter.changed = lambda: changes.append(adapter.places)
    return adapter


def test_a_place_cools_down_after_its_task(clock: Clock) -> None:
    changes: list[int] = []
    adapter = adapter_for(clock, changes, worker_cooldown_seconds=5.0)
    adapter.settled()
    clock.passes(3)
    adapter.settled()
    assert (adapter.places, changes) == (1, [])
    clock.passes(2.1)
    assert (adapter.places, changes) == (2, [2])
    clock.passes(3)
    assert changes == [2, 3]


def test_solo_worker_and_its_subclasses_check_between_tasks(clock: Clock) -> None:
    class OwnSolo(SoloPool):
        pass

    for pool, checks in ((SoloPool(), True), (OwnSolo(), True), (SimpleNamespace(limit=1), False)):
        assert PoolAdapter(pool, GovernorSettings(), 1, clock.call_later).checks_between_tasks is checks


def test_no_cooldown_without_the_setting(clock: Clock) -> None:
    adapter = adapter_for(clock, [])
    adapter.settled()
    assert (adapter.places, clock.later) == (3, [])


def test_places_open_one_by_one(clock: Clock) -> None:
    changes: list[int] = []
    adapter = adapter_for(clock, changes, worker_stagger_seconds=10.0)
    assert adapter.places == 1
    for _ in range(4):
        clock.passes(10)
    assert changes == [2, 3]
    assert clock.later == []


def test_the_baseline_is_measured_once_and_when_every_place_is_there(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, kib = adapter_for(clock, [], worker_stagger_seconds=10.0), 100
    monkeypatch.setattr(module.process, "pss_kib", lambda _: kib)
    adapter.measure_baseline()
    assert adapter.baseline_kib == 0
    clock.passes(20)
    adapter.measure_baseline()
    kib = 900
    adapter.measure_baseline()
    assert (adapter.baseline_kib, adapter.own_kib()) == (100, 900)


class Request:
    """A task that a child runs."""

    def __init__(self, pid: int) -> None:
        self.id, self.name, self.worker_pid, self.time_start = f"id-{pid}", "ml.detect", pid, 990.0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(state, "active_requests", set())
    return World(monkeypatch)


def prefork(clock: Clock, world: World, soft_kib: int, hard_kib: int) -> PreforkPoolAdapter:
    pool = SimpleNamespace(limit=2, _pool=world.pool)
    return PreforkPoolAdapter(pool, GovernorSettings(), 1, clock.call_later, soft_kib, hard_kib)


@pytest.mark.parametrize(("multiplier", "processes", "growth"), [(1, 2, 1), (1, 4, 0), (1, 5, 0), (4, 2, 0)], ids=str)
def test_a_message_more_than_processes_makes_the_autoscaler_add_one(
    clock: Clock, world: World, multiplier: int, processes: int, growth: int
) -> None:
    adapter = prefork(clock, world, 0, 0)
    assert adapter.growth == 0
    adapter.multiplier, adapter.autoscaler = multiplier, SimpleNamespace(processes=processes, max_concurrency=4)
    assert adapter.growth == growth
    threads = adapter_for(clock, [])
    threads.autoscaler = adapter.autoscaler
    assert threads.growth == 0


@pytest.mark.parametrize("hard_kib", [0, 900 * MIB])
def test_shared_memory_does_not_count_near_the_soft_limit(clock: Clock, world: World, hard_kib: int) -> None:
    adapter = prefork(clock, world, 200 * MIB, hard_kib)
    requests = [Request(1), Request(2)]
    state.active_requests.update(requests)
    for pid, rss_mib in ((1, 250), (2, 150)):
        world.begins(world.starts(pid, 100 * MIB))
        world.rss[pid] = rss_mib * MIB
    assert {child.pid: child.pss_kib for child in adapter.running_children()} == {1: 100 * MIB, 2: 150 * MIB}


def test_a_child_counts_as_interrupted_until_its_task_is_over(clock: Clock, world: World) -> None:
    adapter = prefork(clock, world, 0, 0)
    child, request = world.starts(1), Request(1)
    assert not adapter.interrupt(1)
    state.active_requests.add(request)
    world.begins(child)
    assert adapter.interrupt(1)
    (seen,) = adapter.children()
    assert (seen.pid, seen.task, seen.ran_seconds, seen.interrupted) == (1, "ml.detect", 10.0, True)
    state.active_requests.clear()
    world.ends(child)
    (seen,) = adapter.children()
    assert (seen.task, seen.interrupted) == (None, False)
    assert adapter.places == 1
    state.active_requests.add(request)  # The same task, tried again.
    world.begins(child)
    (seen,) = adapter.children()
    assert (seen.task, seen.interrupted) == ("ml.detect", False)
