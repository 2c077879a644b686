"""The sweep: one process at a time, only what is surely dead, and never after an outage of its own."""

import os
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError
from django.db.models.functions import Now
from django.utils import timezone

from ami.governor.probes import identity
from ami.queues import named_leases
from ami.queues.models import Lease, TaskRun, Worker
from ami.queues.rescue import sweep
from ami.queues.rescue.sweep import Sweep

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite]

SILENCE = timedelta(seconds=60)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock, who answers a ping, and who was taken back."""
    made = SimpleNamespace(now=1000.0, answering=set(), taken=[], gone=[], unreachable="")
    monkeypatch.setattr(sweep.time, "monotonic", lambda: made.now)
    monkeypatch.setattr(sweep, "ping", lambda app, nodes: None if made.answering is None else made.answering)
    monkeypatch.setattr(sweep.connections, "take_back", lambda app, row: made.taken.append(row.node) or 1)
    monkeypatch.setattr(sweep.connections, "why_unreachable", lambda app: made.unreachable)
    monkeypatch.setattr(sweep.gone, "worker_gone", made.gone.append)
    return made


def worker(node: str, age_seconds: float = 0, **fields: Any) -> Worker:
    seen_at = timezone.now() - timedelta(seconds=age_seconds)
    values = {"host": "a", "pid": 1, "started_at": seen_at, "connection_name": f"{node}#1", "is_connected": True}
    return Worker.objects.create(node=node, seen_at=seen_at, **values | fields)


def turn(made: Sweep, world: SimpleNamespace, seconds: int = 40) -> None:
    for _ in range(seconds):
        made.turn(None, "me")
        world.now += 1


def verdicts() -> dict[str, str]:
    return dict(Worker.objects.values_list("node", "verdict"))


def test_silent_worker_is_dead_and_one_that_answers_is_left_alone(world: SimpleNamespace):
    worker("dead", 60)
    worker("away", 60)
    worker("well")
    world.answering = {"away"}
    turn(Sweep(), world)
    assert verdicts() == {"dead": "dead", "away": "database away", "well": ""}
    assert set(world.taken) == {"dead"}
    assert set(world.gone) == {"dead#1"}


def test_second_death_of_a_node_is_taken_back_too(world: SimpleNamespace, caplog: pytest.LogCaptureFixture):
    sweeper = Sweep()
    worker("x", 60)
    turn(sweeper, world)
    Worker.objects.update(connection_name="x#2", verdict="", flagged_at=None, seen_at=timezone.now() - SILENCE)
    turn(sweeper, world)
    assert set(world.gone) == {"x#1", "x#2"}
    assert sum("DEAD WORKER x" in record.message for record in caplog.records) == 2


def test_worker_that_was_cut_off_and_then_dies_is_taken_back_twice(world: SimpleNamespace):
    sweeper = Sweep()
    worker("x", frame_age_seconds=70)
    turn(sweeper, world, 23)
    assert (verdicts(), world.gone) == ({"x": "cut off"}, [])
    Worker.objects.update(seen_at=timezone.now() - SILENCE)
    turn(sweeper, world)
    assert (verdicts(), set(world.gone)) == ({"x": "dead"}, {"x#1"})


def test_worker_that_beats_during_the_ping_is_left_alone(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    def ping(app: Any, nodes: list[str]) -> set[str]:
        Worker.objects.filter(node__in=nodes).update(seen_at=timezone.now())
        return set()

    monkeypatch.setattr(sweep, "ping", ping)
    worker("late", 60)
    turn(Sweep(), world)
    assert (verdicts(), world.taken) == ({"late": ""}, [])


def test_worker_is_not_dead_at_the_first_silent_ping(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    answers = iter((set(), {"slow"}))
    monkeypatch.setattr(sweep, "ping", lambda app, nodes: next(answers, {"slow"}))
    worker("slow", 60)
    turn(Sweep(), world)
    assert (verdicts(), world.taken) == ({"slow": "database away"}, [])


def test_error_of_one_worker_keeps_no_other_from_its_rescue(
    world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def release(name: str) -> None:
        if name == "a#1" and world.gone.count(name) == 0:
            world.gone.append(name)
            raise OperationalError("locked")
        world.gone.append(name)

    monkeypatch.setattr(sweep.gone, "worker_gone", release)
    worker("a", 60)
    worker("b", 60)
    turn(Sweep(), world, 60)
    assert verdicts() == {"a": "dead", "b": "dead"}
    assert sum("DEAD WORKER a" in record.message for record in caplog.records) == 1
    # Again for a while, so that what failed at first is done in the end.
    assert world.gone.count("a#1") == 3


def test_next_holder_of_the_lease_neither_tells_nor_repeats_an_old_rescue(
    world: SimpleNamespace, caplog: pytest.LogCaptureFixture
):
    worker("x", 600, verdict="dead", flagged_at=timezone.now() - timedelta(seconds=90))
    worker("y", 60, verdict="dead", flagged_at=timezone.now())
    turn(Sweep(), world)
    assert set(world.taken) == {"y"}
    assert not [record for record in caplog.records if "DEAD WORKER" in record.message]


def test_solo_worker_whose_database_alone_is_away_is_left_alone(world: SimpleNamespace):
    here = {"boot_id": identity.boot_id(), "pid_namespace": identity.pid_namespace(), "pid": os.getpid()}
    started = identity.start_ticks(os.getpid())
    worker("solo", 60, loop_allowance_seconds=360, pid_started=started, **here)
    worker("gone", 60, loop_allowance_seconds=360, pid_started=1, **here)
    worker("elsewhere", 60, loop_allowance_seconds=360, pid_started=started)
    turn(Sweep(), world)
    assert verdicts() == {"solo": "database away", "gone": "dead", "elsewhere": ""}


def test_nothing_is_dead_while_the_broker_cannot_be_asked(world: SimpleNamespace):
    worker("silent", 60)
    world.answering = None
    turn(Sweep(), world)
    assert (verdicts(), world.taken) == ({"silent": ""}, [])


def test_first_seconds_after_an_outage_decide_nothing(world: SimpleNamespace):
    worker("silent", 60)
    turn(Sweep(), world, seconds=19)
    assert world.taken == []


def test_fresh_beat_clears_the_flag(world: SimpleNamespace):
    worker("back", 0, verdict="dead", flagged_at=timezone.now())
    turn(Sweep(), world)
    assert (verdicts(), world.taken) == ({"back": ""}, [])


@pytest.mark.parametrize(
    ("fields", "verdict", "taken"),
    [({"loop_age_seconds": 40}, "wedged", []), ({"frame_age_seconds": 70}, "cut off", ["x"])],
)
def test_beating_worker_that_is_not_well(
    world: SimpleNamespace, fields: dict[str, Any], verdict: str, taken: list[str]
):
    worker("x", **fields)
    turn(Sweep(), world)
    assert verdicts() == {"x": verdict}
    assert world.taken[:1] == taken


def test_row_of_a_dead_worker_is_forgotten_after_a_day(world: SimpleNamespace):
    worker("old", 90_000, verdict="dead")
    turn(Sweep(), world)
    assert verdicts() == {}


def test_missing_management_is_logged_once_at_start(world: SimpleNamespace, caplog: pytest.LogCaptureFixture):
    world.unreachable = "it answered 401"
    turn(Sweep(), world)
    assert sum("it answered 401" in record.message for record in caplog.records) == 1


def test_one_process_sweeps_until_its_lease_is_over():
    assert named_leases.take("sweep", "a", 10)
    assert named_leases.take("sweep", "a", 10)
    assert not named_leases.take("sweep", "b", 10)
    Lease.objects.update(until=Now() - timedelta(seconds=1))
    assert named_leases.take("sweep", "b", 10)
    assert not named_leases.take("sweep", "a", 10)
    named_leases.release("sweep", "b")
    assert named_leases.take("sweep", "a", 10)


def test_sweep_that_nobody_needs_costs_nothing(world: SimpleNamespace, django_assert_num_queries: Any):
    made = Sweep()
    worker("well")
    with django_assert_num_queries(0):
        for _ in range(30):
            made.turn(None, "me", is_needed=False)
            world.now += 1


def running(node: str, age_seconds: float) -> str:
    seen_at = timezone.now() - timedelta(seconds=age_seconds)
    return TaskRun.objects.create(task_id=uuid4().hex, task="t", node=node, started_at=seen_at, seen_at=seen_at).task_id


def test_runs_of_killed_workers_end_and_those_of_living_ones_do_not(world: SimpleNamespace):
    worker("dead", 60)
    worker("well")
    worker("away", 60)
    world.answering = {"away"}
    killed = {running("dead", 59), running("without a row", 60)}
    left = {running("well", 60), running("away", 60), running("without a row", 1), running("dead", 1)}
    turn(Sweep(), world)
    assert (
        set(TaskRun.objects.filter(outcome="killed", ended_at__isnull=False).values_list("task_id", flat=True))
        == killed
    )
    assert set(TaskRun.objects.filter(ended_at=None).values_list("task_id", flat=True)) == left
