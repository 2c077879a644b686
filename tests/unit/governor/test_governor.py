"""The governor on a machine, a pool and a consumer that do what a test says: what it opens, closes, says and tells."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker import state

from ami.governor import governor as module
from ami.governor.crash_log import Board, Entry, Slate, Suspects
from ami.governor.governor import EXIT_CODE
from ami.governor.reclaim import Child
from tests.support.governor.recorded_worker import FULL, MIB, ROOM, SETTINGS, Consumer, World, message


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.LogCaptureFixture]:
    monkeypatch.setattr(state, "should_stop", None)
    with caplog.at_level(logging.INFO, logger=module.__name__):
        yield caplog


# --- holding and releasing --------------------------------------------------------------------------------------------


def test_held_there_are_no_slots_and_released_all_of_them_again(logged: pytest.LogCaptureFixture) -> None:
    world = World()
    assert (world.consumer.slots, world.consumer.multiplier) == (4, 1)
    assert [world.look(FULL), world.look(FULL), world.look(ROOM)] == [0, 0, 4]
    assert world.consumer.adjusted == [0, 0, 4]
    assert world.events == [("worker-governor", True, False), ("worker-governor", False, False)]
    said = [(record.levelname, record.getMessage().split(":")[0]) for record in logged.records]
    assert said == [("WARNING", "🚨 MEMORY THROTTLE ACTIVE"), ("INFO", "✅ MEMORY THROTTLE RELEASED")]
    assert (world.governor.counts["holds"], world.governor.counts["looks"]) == (1, 4)


def test_who_connects_to_a_full_machine_takes_nothing_from_the_first_moment() -> None:
    world = World(attach=False)
    world.machine.now = FULL
    world.governor.attach(world.consumer, lambda function: function(), world._event)
    assert world.consumer.slots == 0


def test_what_was_held_stays_held_on_the_next_connection_and_is_said_once() -> None:
    world = World()
    world.look(FULL)
    world.governor.detach()
    world.governor.look()
    world.governor.attach(world.consumer, lambda function: function(), world._event)
    assert world.consumer.slots == 0
    world.look(FULL)
    assert len(world.events) == 1


def test_the_operators_pause_holds_and_ends_at_once() -> None:
    world = World()
    world.paused = True
    assert world.look(ROOM) == 0
    assert world.governor.info()["causes"] == ["paused"]
    world.paused = False
    assert world.look(ROOM) == 4


def test_a_message_that_is_settled_while_held_leaves_no_slot_and_one_that_is_not_leaves_its_own() -> None:
    world = World()
    world.consumer.settled(1)
    assert (world.consumer.slots, world.crew.done) == (4, [])
    world.look(FULL)
    world.consumer.slots = 4
    world.consumer.settled(2)
    assert world.consumer.slots == 0


def test_a_place_that_rests_is_gone_before_its_message_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.crew.rests = True
    monkeypatch.setattr(world.crew, "settled", lambda: setattr(world.crew, "places", world.crew.places - 1))
    world.consumer.settled(1)
    assert world.consumer.slots == 3


def test_what_a_lost_connection_had_delivered_says_nothing_of_the_next() -> None:
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


def test_places_that_come_and_go_are_followed() -> None:
    world = World()
    world.crew.places = 2
    world.crew.changed()
    assert world.consumer.adjusted == [2]
    world.governor.detach()
    world.crew.changed()
    assert world.consumer.adjusted == [2]


def test_dry_run_says_everything_and_changes_nothing(logged: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    settings = replace(SETTINGS, memory_governor="dry-run", memory_interrupt_busy=True)
    board = Board(tmp_path)
    Suspects(tmp_path).accuse([Entry(1, "ml.detect", "a", 0.0, 0)] * 2)
    world = World(settings, board)
    world.crew.everyone = [Child(1, 900 * MIB, 50 * MIB, "ml.detect"), Child(2, 900 * MIB, 50 * MIB, None)]
    world.crew.soft_kib, world.crew.hard_kib = 100 * MIB, 200 * MIB
    assert [world.look(FULL), world.look(FULL)] == [4, 4]
    assert not world.consumer.refuses(message("a"))
    assert world.crew.done == []
    assert world.governor.info()["state"] == "held"
    assert world.events == [("worker-governor", True, True)]
    assert any(text.startswith("[dry-run] 🚨 MEMORY THROTTLE ACTIVE") for text in logged.messages)


def test_a_hold_is_announced_when_everything_that_was_handed_over_has_begun() -> None:
    world = World()
    world.crew.unstarted = 1
    world.look(FULL)
    assert world.events == []
    (settle,) = world.crew.later
    settle()
    assert world.events == []
    world.crew.unstarted = 0
    world.crew.later[-1]()
    world.crew.later[-1]()
    assert world.events == [("worker-governor", True, False)]


def test_while_nothing_runs_under_what_others_hold_one_task_is_let_through_per_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    world = World()
    assert world.look(FULL) == 0
    now += 301
    assert world.look(FULL) == 1
    world.consumer.settled(1)
    assert world.consumer.slots == 0
    assert world.look(FULL) == 1
    assert world.governor.info()["held_seconds"] == 301
    assert world.governor.counts["admitted"] == 1


# --- what it does to children -----------------------------------------------------------------------------------------


def test_held_for_memory_it_has_grown_children_recycled_once_everything_has_begun() -> None:
    world = World()
    world.crew.everyone = [Child(1, 300 * MIB, 50 * MIB, None), Child(2, 60 * MIB, 50 * MIB, None)]
    world.crew.unstarted = 1
    world.look(FULL)
    assert world.crew.done == []
    world.crew.unstarted = 0
    world.look(FULL)
    assert world.crew.done == [("recycle", 1, "held")]


def test_a_child_above_its_limits_is_marked_or_ended_held_or_not(tmp_path: Path) -> None:
    world = World(board=Board(tmp_path))
    world.crew.soft_kib, world.crew.hard_kib = 200 * MIB, 400 * MIB
    fat, fatter = Child(1, 300 * MIB, 50 * MIB, "jobs.save"), Child(2, 500 * MIB, 50 * MIB, "ml.detect")
    world.crew.everyone = [fat, fatter]
    world.look(ROOM)
    assert world.crew.done == [("end", 2, "ml.detect", 500 * MIB), ("recycle", 1, "soft-limit")]
    assert world.governor.counts["ended"] == 1
    assert world.governor.sizes.p95_kib("ml.detect") == 450 * MIB


def test_the_fattest_is_interrupted_where_that_is_allowed() -> None:
    world = World(replace(SETTINGS, memory_interrupt_busy=True))
    world.crew.everyone = [Child(1, 300 * MIB, 50 * MIB, "jobs.save", leaving=True)]
    world.look(FULL)
    assert world.crew.done == [("interrupt", 1)]
    assert world.governor.counts["interrupted"] == 1


def test_each_running_childs_size_is_on_the_board_and_files_of_others_are_not(tmp_path: Path) -> None:
    board = Board(tmp_path)
    world = World(board=board)
    Slate(tmp_path).begins("jobs.save", "a")
    (entry,) = board.running()
    gone = tmp_path / "1-1.run"
    gone.touch()
    world.crew.everyone = [Child(entry.pid, 300 * MIB, 50 * MIB, "jobs.save")]
    world.look(ROOM)
    assert [(each.id, each.kib) for each in board.running()] == [("a", 300 * MIB)]
    assert not gone.exists()


def test_a_worker_that_holds_the_memory_itself_ends(monkeypatch: pytest.MonkeyPatch, logged: Any) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    world = World()
    world.crew.baseline_kib, world.crew.own = 200 * MIB, 60 * 1024 * MIB
    world.look(FULL)
    assert state.should_stop is None
    now += 60
    world.look(FULL)
    assert state.should_stop == EXIT_CODE
    assert "this worker's own processes hold" in logged.text


# --- looking ----------------------------------------------------------------------------------------------------------


def test_a_probe_that_fails_is_reported_once_until_it_works_again(logged: pytest.LogCaptureFixture) -> None:
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


def test_it_looks_again_sooner_while_a_child_grows_towards_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    world = World()
    world.crew.hard_kib = 400 * MIB
    world.crew.everyone = [Child(1, 100 * MIB, 50 * MIB, "jobs.save")]
    assert world.governor.look() == SETTINGS.memory_check_interval
    now += 1
    world.crew.everyone = [Child(1, 250 * MIB, 50 * MIB, "jobs.save")]
    assert world.governor.look() == pytest.approx(1.0)
    now += 1
    world.crew.everyone = [Child(1, 399 * MIB, 50 * MIB, "jobs.save")]
    assert world.governor.look() == pytest.approx(0.2)


def test_a_worker_of_one_looks_between_its_tasks_when_it_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    world = World()
    world.crew.looks_between_tasks = True
    world.machine.now = FULL
    now += 4
    world.consumer.settled(1)
    assert world.consumer.slots == 4
    now += 1
    world.consumer.settled(2)
    assert world.consumer.slots == 0


@pytest.mark.parametrize("mode", ["off", "dry-run", "on"])
def test_what_it_tells_is_json(tmp_path: Path, mode: str) -> None:
    world = World(replace(SETTINGS, memory_reservation=mode), Board(tmp_path))
    world.consumer.refuses(message(redelivered=True))
    world.look(FULL)
    told = world.governor.info()
    assert json.loads(json.dumps(told)) == told
    assert (told["state"], told["causes"], told["slots"], told["places"]) == ("held", ["memory"], 0, 4)
    assert (told["percent"]["memory"], told["recycled"], told["redelivered"]) == (95.0, {"held": 2}, 1)
