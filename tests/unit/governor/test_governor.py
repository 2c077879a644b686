"""The governor on a scripted machine, pool and consumer: slots, actions on children, log lines and ``info``."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from celery.worker import state

from ami.governor.crash_log import Entry, RunLog, RunRecord
from ami.governor.memory_reclaimer import EXIT_CODE
from ami.governor.reclaim import Child
from ami.governor.suspects import Suspects
from tests.support.governor.decision_inputs import sample
from tests.support.governor.recorded_worker import FULL, MIB, ROOM, SETTINGS, Consumer, World, message


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(state, "should_stop", None)
    for name in ("announcer", "memory_reclaimer", "monitor"):
        caplog.set_level(logging.INFO, logger=f"ami.governor.{name}")
    return caplog


# --- holding and releasing ---


def test_a_hold_closes_all_slots_and_a_release_opens_them(logged: pytest.LogCaptureFixture) -> None:
    world = World()
    assert (world.consumer.slots, world.consumer.multiplier) == (4, 1)
    assert [world.look(FULL), world.look(FULL), world.look(ROOM)] == [0, 0, 4]
    assert world.consumer.adjusted == [0, 0, 4]
    assert world.events == [("worker-governor", True, False), ("worker-governor", False, False)]
    logged_lines = [(record.levelname, record.getMessage().split(":")[0]) for record in logged.records]
    assert logged_lines == [("WARNING", "🚨 MEMORY THROTTLE ACTIVE"), ("INFO", "✅ MEMORY THROTTLE RELEASED")]
    assert (world.governor.counts["holds"], world.governor.counts["looks"]) == (1, 4)


def test_a_worker_that_connects_on_a_full_machine_has_no_slots() -> None:
    world = World(attach=False)
    world.machine.now = FULL
    world.governor.attach(world.consumer, lambda function: function(), world._event)
    assert world.consumer.slots == 0


def test_a_hold_survives_a_reconnect_and_is_announced_once() -> None:
    world = World()
    world.look(FULL)
    world.governor.detach()
    world.governor.check()
    world.governor.attach(world.consumer, lambda function: function(), world._event)
    assert world.consumer.slots == 0
    world.look(FULL)
    assert len(world.events) == 1


def test_the_operators_pause_takes_effect_without_delay() -> None:
    world = World()
    world.paused = True
    assert world.look(ROOM) == 0
    assert world.governor.info()["causes"] == ["paused"]
    world.paused = False
    assert world.look(ROOM) == 4


def test_cpu_holds_and_its_status_says_so(logged: pytest.LogCaptureFixture) -> None:
    world = World(SETTINGS.model_copy(update={"cpu_throttle_threshold": 90.0}))
    assert [world.look(sample(40, cpu=95)), world.look(sample(40, cpu=80))] == [0, 4]
    world.look(sample(40, cpu=95))
    info = world.governor.info()
    assert (info["state"], info["causes"], info["percent"]["cpu"]) == ("held", ["cpu"], 95)
    assert info["reasons"] == ["CPU at 95.0% (throttle at 90%, host)"]
    assert info["thresholds"]["cpu"] == [90, 80]
    assert logged.records[0].getMessage() == "🚨 CPU THROTTLE ACTIVE: CPU at 95.0% (throttle at 90%, host)"
    assert world.pool.done == []


@pytest.mark.parametrize(("elapsed", "seconds"), [(0, 3), (1.5, 1.5), (2.99, 0.01), (3, 5)])
def test_the_next_look_comes_when_the_grace_period_ends(elapsed: float, seconds: float) -> None:
    world = World(SETTINGS.model_copy(update={"master_grace_period_seconds": 3.0}))
    world.now += elapsed
    assert world.governor.check() == pytest.approx(seconds, abs=0.02)


def test_the_next_look_comes_when_the_minimum_hold_ends() -> None:
    world = World(SETTINGS.model_copy(update={"memory_min_hold_seconds": 7.0}))
    world.look(FULL)
    world.now += 5
    world.machine.now = ROOM
    assert world.governor.check() == pytest.approx(2, abs=0.02)
    world.now += world.governor.monitor.schedule_next(5)
    assert world.look(ROOM) == 4


def test_a_message_settled_while_held_leaves_no_slot() -> None:
    world = World()
    world.consumer.settled(1)
    assert (world.consumer.slots, world.pool.done) == (4, [])
    world.look(FULL)
    world.consumer.slots = 4
    world.consumer.settled(2)
    assert world.consumer.slots == 0


def test_a_cooling_place_is_removed_before_its_message_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.pool.has_cooldown = True
    monkeypatch.setattr(world.pool, "settled", lambda: setattr(world.pool, "places", world.pool.places - 1))
    world.consumer.settled(1)
    assert world.consumer.slots == 3


def test_deliveries_of_a_lost_connection_are_ignored() -> None:
    world = World()
    late = world.consumer.settled
    world.look(FULL)
    other = Consumer()
    world.governor.attach(other, lambda function: function(), world._event)
    world.consumer.slots = other.slots = 4
    late(1)
    assert (world.consumer.slots, other.slots) == (4, 4)
    other.settled(1)
    assert other.slots == 0


def test_pause_that_cannot_be_told_stays_as_it_was_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(attach=False)
    world.pause_error = ConnectionError("no database")
    world.governor.attach(world.consumer, lambda function: function())
    world.look(ROOM)
    assert world.governor.info()["causes"] == []
    assert caplog.text.count("Operator's pause unknown, the queue stays not paused") == 1
    world.paused, world.pause_error = True, None
    world.look(ROOM)
    world.pause_error = ConnectionError("no database")
    assert [world.look(ROOM), world.look(ROOM)] == [0, 0]
    assert world.governor.info()["causes"] == ["paused"]
    assert caplog.text.count("Operator's pause unknown, the queue stays paused") == 1


def test_one_slot_more_while_the_pool_may_grow_and_none_while_held() -> None:
    world = World()
    world.pool.growth = 1
    assert [world.look(ROOM), world.look(FULL)] == [5, 0]


def test_slots_follow_the_number_of_places() -> None:
    world = World()
    world.pool.places = 2
    world.pool.changed()
    assert world.consumer.adjusted == [2]
    world.governor.detach()
    world.pool.changed()
    assert world.consumer.adjusted == [2]


def test_dry_run_logs_everything_and_changes_nothing(logged: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"memory_governor": "dry-run", "memory_interrupt_busy": True})
    run_log = RunLog(tmp_path)
    Suspects(tmp_path).record_crash([Entry(1, "ml.detect", "a", 0.0, 0)] * 2)
    world = World(settings, run_log)
    world.pool.everyone = [Child(1, 900 * MIB, 50 * MIB, "ml.detect"), Child(2, 900 * MIB, 50 * MIB, None)]
    world.pool.soft_kib, world.pool.hard_kib = 100 * MIB, 200 * MIB
    assert [world.look(FULL), world.look(FULL)] == [4, 4]
    assert not world.consumer.refuses(message("a"))
    assert world.pool.done == []
    assert world.governor.info()["state"] == "held"
    assert world.events == [("worker-governor", True, True)]
    assert any(text.startswith("[dry-run] 🚨 MEMORY THROTTLE ACTIVE") for text in logged.messages)


def test_a_hold_is_announced_when_every_delivered_task_has_started() -> None:
    world = World()
    world.pool.unstarted = 1
    world.look(FULL)
    assert world.events == []
    (settle,) = world.pool.later
    settle()
    assert world.events == []
    world.pool.unstarted = 0
    world.pool.later[-1]()
    world.pool.later[-1]()
    assert world.events == [("worker-governor", True, False)]


def test_one_task_per_check_is_admitted_while_others_use_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    assert world.look(FULL) == 0
    world.now += 301
    assert world.look(FULL) == 1
    world.consumer.settled(1)
    assert world.consumer.slots == 0
    assert world.look(FULL) == 1
    assert world.governor.info()["held_seconds"] == 301
    assert world.governor.counts["admitted"] == 1


# --- what it does to children ---


def test_grown_children_are_recycled_when_every_task_has_started() -> None:
    world = World()
    world.pool.everyone = [Child(1, 300 * MIB, 50 * MIB, None), Child(2, 60 * MIB, 50 * MIB, None)]
    world.pool.unstarted = 1
    world.look(FULL)
    assert world.pool.done == []
    world.pool.unstarted = 0
    world.look(FULL)
    assert world.pool.done == [("recycle", 1, "held")]


def test_a_child_above_its_limits_is_recycled_or_ended(tmp_path: Path) -> None:
    world = World(run_log=RunLog(tmp_path))
    world.pool.soft_kib, world.pool.hard_kib = 200 * MIB, 400 * MIB
    fat, fatter = Child(1, 300 * MIB, 50 * MIB, "jobs.save"), Child(2, 500 * MIB, 50 * MIB, "ml.detect")
    world.pool.everyone = [fat, fatter]
    world.look(ROOM)
    assert world.pool.done == [("end", 2, "ml.detect", 500 * MIB), ("recycle", 1, "soft-limit")]
    assert world.governor.counts["ended"] == 1
    assert world.governor.sizes.p95_kib("ml.detect") == 450 * MIB


def test_the_largest_child_is_interrupted_where_that_is_allowed() -> None:
    world = World(SETTINGS.model_copy(update={"memory_interrupt_busy": True}))
    world.pool.everyone = [Child(1, 300 * MIB, 50 * MIB, "jobs.save", draining=True)]
    world.look(FULL)
    assert world.pool.done == [("interrupt", 1)]
    assert world.governor.counts["interrupted"] == 1


def test_run_log_has_each_running_childs_size_and_no_other_files(tmp_path: Path) -> None:
    run_log = RunLog(tmp_path)
    world = World(run_log=run_log)
    RunRecord(tmp_path).task_started("jobs.save", "a")
    (entry,) = run_log.running()
    ended = tmp_path / "1-1.run"
    ended.touch()
    world.pool.everyone = [Child(entry.pid, 300 * MIB, 50 * MIB, "jobs.save")]
    world.look(ROOM)
    assert [(each.id, each.kib) for each in run_log.running()] == [("a", 300 * MIB)]
    assert not ended.exists()


def test_a_worker_that_holds_the_memory_itself_exits(monkeypatch: pytest.MonkeyPatch, logged: Any) -> None:
    world = World()
    world.pool.baseline_kib, world.pool.own = 200 * MIB, 60 * 1024 * MIB
    world.look(FULL)
    assert state.should_stop is None
    world.now += 60
    world.look(FULL)
    assert state.should_stop == EXIT_CODE
    assert "this worker's own processes hold" in logged.text


# --- checking ---


def test_a_failing_probe_is_reported_once_until_it_works_again(logged: pytest.LogCaptureFixture) -> None:
    world, broken = World(), replace(ROOM, faults=("The GPU probe failed: no.",))
    for machine in (broken, broken, replace(broken, faults=(*broken.faults, "The swap probe failed: no."))):
        world.look(machine)
    assert [text.partition(": ")[2] for text in logged.messages] == [
        "The GPU probe failed: no.",
        "The swap probe failed: no.",
    ]
    logged.clear()
    world.look(ROOM)
    world.look(broken)
    assert len(logged.messages) == 1


def test_the_next_check_comes_sooner_while_a_child_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.pool.hard_kib = 400 * MIB
    world.pool.everyone = [Child(1, 100 * MIB, 50 * MIB, "jobs.save")]
    assert world.governor.check() == SETTINGS.memory_check_interval
    world.now += 1
    world.pool.everyone = [Child(1, 250 * MIB, 50 * MIB, "jobs.save")]
    assert world.governor.check() == pytest.approx(1.0)
    world.now += 1
    world.pool.everyone = [Child(1, 399 * MIB, 50 * MIB, "jobs.save")]
    assert world.governor.check() == pytest.approx(0.2)


def test_a_solo_worker_checks_between_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.pool.checks_between_tasks = True
    world.machine.now = FULL
    world.now += 4
    world.consumer.settled(1)
    assert world.consumer.slots == 4
    world.now += 1
    world.consumer.settled(2)
    assert world.consumer.slots == 0


@pytest.mark.parametrize("mode", ["off", "dry-run", "on"])
def test_info_is_json(tmp_path: Path, mode: str) -> None:
    world = World(SETTINGS.model_copy(update={"memory_reservation": mode}), RunLog(tmp_path))
    world.consumer.refuses(message(redelivered=True))
    world.look(FULL)
    info = world.governor.info()
    assert json.loads(json.dumps(info)) == info
    assert (info["state"], info["causes"], info["slots"], info["places"]) == ("held", ["memory"], 0, 4)
    assert (info["percent"]["memory"], info["recycled"], info["redelivered"]) == (95.0, {"held": 2}, 1)
