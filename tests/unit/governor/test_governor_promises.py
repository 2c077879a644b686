"""Whom the governor lets run alone, whom it buries, and for whom it keeps memory free."""

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ami.governor import governor as module
from ami.governor.crash_log import Board, Entry, Slate, Suspects
from ami.governor.governor import Governor
from ami.governor.reclaim import Child
from tests.support.governor.decision_inputs import reading
from tests.support.governor.recorded_worker import MIB, ROOM, SETTINGS, Crew, Machine, World, message

RESERVES = replace(SETTINGS, memory_reservation="on")
GIB_KIB = 1024 * MIB


def suspected(folder: Path, *task_ids: str, deaths: int = 1) -> Board:
    """A board beside which these tasks are suspected."""
    board = Board(folder)
    for _ in range(deaths):
        Suspects(folder).accuse([Entry(1, "ml.detect", task_id, 0.0, 0) for task_id in task_ids])
    return board


# --- suspects ---------------------------------------------------------------------------------------------------------


def test_who_ran_at_a_sudden_death_is_named_and_runs_alone_next_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Slate(tmp_path).begins("ml.detect", "a")
    (tmp_path / "torn.run").touch()
    world = World(board=Board(tmp_path))
    assert "killed at once while it ran ml.detect[a] (0 MiB at the last look)" in caplog.text
    assert world.governor.info()["suspects"] == ["a"]
    assert (world.consumer.slots, world.look(ROOM)) == (1, 1)


def test_one_at_a_time_until_every_suspect_has_ended(tmp_path: Path) -> None:
    world = World(board=suspected(tmp_path, "a", "b"))
    for tag, (task_id, slots) in enumerate([("a", 1), ("innocent", 1), ("b", 4)]):
        assert not world.consumer.refuses(message(task_id, tag))
        world.consumer.settled(tag)
        assert world.consumer.slots == slots
    assert world.consumer.adjusted == [1, 4]
    assert Suspects(tmp_path).open == frozenset()


def test_a_message_that_came_over_a_connection_that_is_gone_acquits_nobody(tmp_path: Path) -> None:
    world = World(board=suspected(tmp_path, "a"))
    world.consumer.refuses(message("a", 1))
    world.governor.detach()
    world.governor.attach(world.consumer, lambda function: function(), lambda *_, **__: None)
    world.consumer.settled(1)
    assert world.consumer.slots == 1


def test_suspects_that_another_worker_has_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    world = World(board=suspected(tmp_path, "a"))
    now += SETTINGS.memory_max_hold_seconds - 1
    assert world.look(ROOM) == 1
    now += 1
    world.consumer.refuses(message("a", 1))
    assert world.look(ROOM) == 1
    world.governor.attach(world.consumer, lambda function: function(), lambda *_, **__: None)
    assert world.look(ROOM) == 4
    assert Suspects(tmp_path).open == frozenset()


def test_who_has_killed_twice_is_buried_and_the_rest_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(board=suspected(tmp_path, "a", deaths=2))
    killer, other = message("a", 1), message("b", 2)
    assert world.consumer.refuses(killer)
    assert not world.consumer.refuses(other)
    assert (killer.rejected, other.rejected) == ([False], [])
    assert "ml.detect[a] was running each of the 2 times" in world.consumer.reasons[0]
    assert "ml.detect[a] was running each of the 2 times" in caplog.text
    assert world.governor.counts["buried"] == 1
    assert world.consumer.slots == 4


def test_a_message_without_headers_is_not_the_governors_business(tmp_path: Path) -> None:
    world = World(board=suspected(tmp_path, "a"))
    foreign = message()
    foreign.headers = None
    assert not world.consumer.refuses(foreign)


def test_without_a_board_nobody_is_suspected() -> None:
    world = World()
    assert not world.consumer.refuses(message("a"))
    assert world.governor.info()["suspects"] == []


# --- reservation ------------------------------------------------------------------------------------------------------


def test_nothing_is_taken_before_it_is_known_what_fits() -> None:
    world = World(RESERVES)
    assert world.consumer.slots == 0
    assert world.look(ROOM) == 4


def test_as_many_are_let_in_as_fit_beside_what_was_promised() -> None:
    world = World(RESERVES)
    world.governor.sizes.learn("ml.detect", 20 * GIB_KIB)
    assert world.look(ROOM) == 2  # 50 GiB are left below 90%.
    world.crew.everyone = [Child(1, 60 * MIB, 50 * MIB, "ml.detect")]
    assert world.look(ROOM) == 2
    assert world.look(reading(70)) == 1
    assert "ml.detect may add 20480 MiB" in world.governor.info()["reservation"]


def test_what_a_child_has_not_begun_or_has_just_ended_is_promised_too() -> None:
    world = World(RESERVES)
    world.governor.sizes.learn("ml.detect", 20 * GIB_KIB)
    world.crew.running = 1  # No child says that it runs a task.
    assert world.look(ROOM) == 2
    world.crew.has_children = False
    assert world.look(ROOM) == 3, "threads have no memory of their own: what they took is in the reading"


def test_in_its_dry_run_reservation_only_says_what_it_would_do_and_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(replace(SETTINGS, memory_reservation="dry-run"))
    world.governor.sizes.learn("ml.detect", 20 * GIB_KIB)
    assert [world.look(ROOM), world.look(ROOM)] == [4, 4]
    (said,) = [text for text in caplog.messages if "free slots" in text]
    assert said.startswith("[dry-run] 2 of 4 free slots")


def test_what_children_tell_is_learned_and_outlives_the_worker(tmp_path: Path) -> None:
    world = World(RESERVES, Board(tmp_path))
    (tmp_path / "11.sizes").write_text(f"{20 * GIB_KIB} ml.detect\n")
    assert world.look(ROOM) == 2
    after = Governor(RESERVES, Crew(), Board(tmp_path), machine=Machine())
    assert after.sizes.p95_kib("ml.detect") == 20 * GIB_KIB


def test_nothing_is_learned_where_reservation_is_off(tmp_path: Path) -> None:
    world = World(board=Board(tmp_path))
    (tmp_path / "11.sizes").write_text("900000 ml.detect\n")
    world.look(ROOM)
    assert world.governor.sizes.largest_kib() is None
