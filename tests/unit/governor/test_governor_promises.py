"""Which tasks the governor runs alone, which it buries, and for which it reserves memory."""

import logging
from pathlib import Path

import pytest

from ami.governor.crash_log import Entry, RunLog, RunRecord
from ami.governor.governor import Governor
from ami.governor.reclaim import Child
from ami.governor.sample import Sample
from ami.governor.suspects import Suspects
from tests.support.governor.decision_inputs import sample
from tests.support.governor.recorded_worker import MIB, ROOM, SETTINGS, Machine, PoolAdapter, World, message

RESERVES = SETTINGS.model_copy(update={"memory_reservation": "on"})
GIB_KIB = 1024 * MIB


def suspected(folder: Path, *task_ids: str, deaths: int = 1) -> RunLog:
    """Return a run log in whose folder these tasks are suspected."""
    run_log = RunLog(folder)
    for _ in range(deaths):
        Suspects(folder).record_crash([Entry(1, "ml.detect", task_id, 0.0, 0) for task_id in task_ids])
    return run_log


# --- suspects ---


def test_task_running_at_a_crash_is_logged_and_runs_alone_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    RunRecord(tmp_path).task_started("ml.detect", "a")
    (tmp_path / "torn.run").touch()
    world = World(run_log=RunLog(tmp_path))
    assert "killed without warning while running ml.detect[a] (0 MiB at the last check)" in caplog.text
    assert world.governor.info()["suspects"] == ["a"]
    assert (world.consumer.slots, world.look(ROOM)) == (1, 1)


def test_one_task_runs_at_a_time_until_every_suspect_has_ended(tmp_path: Path) -> None:
    world = World(run_log=suspected(tmp_path, "a", "b"))
    for tag, (task_id, slots) in enumerate([("a", 1), ("other", 1), ("b", 4)]):
        assert not world.consumer.refuses(message(task_id, tag))
        world.consumer.settled(tag)
        assert world.consumer.slots == slots
    assert world.consumer.adjusted == [1, 4]
    assert Suspects(tmp_path).open == frozenset()


def test_message_of_a_lost_connection_clears_no_suspect(tmp_path: Path) -> None:
    world = World(run_log=suspected(tmp_path, "a"))
    world.consumer.refuses(message("a", 1))
    world.governor.detach()
    world.governor.attach(world.consumer, lambda function: function(), lambda *_, **__: None)
    world.consumer.settled(1)
    assert world.consumer.slots == 1


def test_suspects_received_by_another_worker_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(run_log=suspected(tmp_path, "a"))
    world.now += SETTINGS.memory_max_hold_seconds - 1
    assert world.look(ROOM) == 1
    world.now += 1
    world.consumer.refuses(message("a", 1))
    assert world.look(ROOM) == 1
    world.governor.attach(world.consumer, lambda function: function(), lambda *_, **__: None)
    assert world.look(ROOM) == 4
    assert Suspects(tmp_path).open == frozenset()


def test_task_that_crashed_its_worker_twice_is_buried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(run_log=suspected(tmp_path, "a", deaths=2))
    killer, other = message("a", 1), message("b", 2)
    assert world.consumer.refuses(killer)
    assert not world.consumer.refuses(other)
    assert (killer.rejected, other.rejected) == ([False], [])
    assert "ml.detect[a] was running each of the 2 times" in world.consumer.reasons[0]
    assert "ml.detect[a] was running each of the 2 times" in caplog.text
    assert world.governor.counts["buried"] == 1
    assert world.consumer.slots == 4


def test_a_message_without_headers_is_accepted(tmp_path: Path) -> None:
    world = World(run_log=suspected(tmp_path, "a"))
    foreign = message()
    foreign.headers = None
    assert not world.consumer.refuses(foreign)


def test_without_a_run_log_no_task_is_suspected() -> None:
    world = World()
    assert not world.consumer.refuses(message("a"))
    assert world.governor.info()["suspects"] == []


# --- reservation ---


def test_no_slots_before_the_first_reservation() -> None:
    world = World(RESERVES)
    assert world.consumer.slots == 0
    assert world.look(ROOM) == 4


def test_as_many_are_admitted_as_fit_beside_the_running() -> None:
    world = World(RESERVES)
    world.governor.sizes.learn("ml.detect", 20 * GIB_KIB)
    assert world.look(ROOM) == 2  # 50 GiB are left below 90%.
    world.pool.everyone = [Child(1, 60 * MIB, 50 * MIB, "ml.detect")]
    assert world.look(ROOM) == 2
    assert world.look(sample(70)) == 1
    assert "ml.detect may add 20480 MiB" in world.governor.info()["reservation"]


def test_scope_with_least_room_in_bytes_counts_though_another_is_fuller_in_percent() -> None:
    world = World(RESERVES)
    world.governor.sizes.learn("ml.detect", 20 * GIB_KIB)
    gib = 1024**3
    idle_container = Sample(900 * gib, 5000 * gib, "host", other_memory=(15 * gib, 100 * gib))
    assert idle_container.memory_percent == 18
    assert world.look(idle_container) == 3, "75 GiB are left in the container, 3,600 on the host"


def test_task_that_grew_or_ended_after_the_sample_lets_nobody_else_in() -> None:
    world = World(RESERVES)
    world.governor.sizes.learn("ml.detect", 20 * GIB_KIB)
    grown, growing = [Child(1, 20 * GIB_KIB, 20 * GIB_KIB, "ml.detect")], [Child(1, 60 * MIB, 0, "ml.detect")]
    for before, after in [(growing, grown), (grown, []), ([], grown), (grown, growing)]:
        world.pool.everyone = before

        def read(after: list[Child] = after) -> object:
            world.pool.everyone = after
            return ROOM

        world.machine.read = read  # type: ignore[method-assign]
        world.governor.check()
        assert world.consumer.slots == 2, (before, after)


def test_delivered_and_just_ended_tasks_reserve_memory_too() -> None:
    world = World(RESERVES)
    world.governor.sizes.learn("ml.detect", 20 * GIB_KIB)
    world.pool.running = 1  # No child reports a task.
    assert world.look(ROOM) == 2
    world.pool.has_children = False
    assert world.look(ROOM) == 3, "threads have no memory of their own: the sample contains it"


def test_reservation_in_dry_run_logs_once_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(SETTINGS.model_copy(update={"memory_reservation": "dry-run"}))
    world.governor.sizes.learn("ml.detect", 20 * GIB_KIB)
    assert [world.look(ROOM), world.look(ROOM)] == [4, 4]
    (line,) = [text for text in caplog.messages if "free slots" in text]
    assert line.startswith("[dry-run] Reservation: 2 of 4 free slots")


def test_samples_of_children_are_learned_and_survive_the_worker(tmp_path: Path) -> None:
    world = World(RESERVES, RunLog(tmp_path))
    (tmp_path / "11.sizes").write_text(f"{20 * GIB_KIB} ml.detect\n")
    assert world.look(ROOM) == 2
    after = Governor(RESERVES, PoolAdapter(), RunLog(tmp_path), machine=Machine())
    assert after.sizes.p95_kib("ml.detect") == 20 * GIB_KIB


def test_nothing_is_learned_where_reservation_is_off(tmp_path: Path) -> None:
    world = World(run_log=RunLog(tmp_path))
    (tmp_path / "11.sizes").write_text("900000 ml.detect\n")
    world.look(ROOM)
    assert world.governor.sizes.largest_kib() is None
