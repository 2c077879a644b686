"""The children of a prefork pool, without processes: which may receive a task, and which are replaced."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from billiard.pool import DEATH
from celery.exceptions import Retry

from ami.governor.errors import CeilingReached, MemoryLimitExceeded
from ami.governor.outcome import as_einfo
from ami.governor.pool_children import LEAVE_SECONDS, REAP_SECONDS
from tests.support.governor.prefork_pool import MIB, World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_child_that_may_go_on_is_left_alone(world: World) -> None:
    child = world.starts(1)
    world.runs(child)
    assert world.events == ["settled"]
    assert (world.free(child), child.dismissed, world.children.ready) == (True, 0, 1)


def test_a_result_of_an_ended_child_is_only_passed_on(world: World) -> None:
    child = world.starts(1)
    world.children.single_job = True
    world.begins(child)
    world.pool._fileno_to_inq.clear()
    world.ends(child)
    assert world.events == ["settled"]


def test_a_cooling_child_is_unready_before_its_message_is_settled(world: World) -> None:
    child, _ = world.starts(1), world.starts(2)
    world.children.cooldown_seconds = 5
    world.runs(child)
    assert world.events == [("ready", 1), "settled"]
    assert not world.free(child)
    assert world.children.idle() == [1, 2]
    world.passes(4.9)
    assert (world.free(child), world.children.ready) == (False, 1)
    world.passes(0.1)
    assert world.events[-1] == ("ready", 2)
    assert (world.free(child), child.dismissed) == (True, 0)


def test_a_cooling_child_is_recycled_without_delay(world: World) -> None:
    child = world.starts(1)
    world.children.cooldown_seconds = 5
    world.runs(child)
    world.children.recycle(1, "held")
    assert child.dismissed == 1
    world.passes(5)
    assert (world.free(child), child.dismissed) == (False, 1)


def test_the_end_of_a_cooldown_leaves_a_replacement_busy(world: World) -> None:
    child = world.starts(1)
    world.children.cooldown_seconds = 5
    world.runs(child)
    world.dies(child)
    replacement = world.starts(2, fd=child.inqW_fd)
    world.begins(replacement)
    world.passes(5)
    assert not world.free(replacement)


def test_a_child_at_its_maximum_of_tasks_exits_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, max_tasks=2)
    world.children.cooldown_seconds = 5
    child = world.starts(1)
    world.runs(child)
    world.passes(5)
    world.events.clear()
    world.runs(child)
    assert world.events == [("ready", 0), "settled"]
    assert (world.free(child), child.dismissed, world.children.draining(1)) == (False, 0, True)
    assert world.children.recycled == {"max-tasks": 1}


def test_a_child_above_its_soft_limit_is_replaced_between_two_tasks(world: World) -> None:
    child, other = world.starts(1), world.starts(2)
    world.children.soft_kib = 200 * MIB
    world.pss.update({1: 201 * MIB, 2: 199 * MIB})
    world.runs(child)
    world.runs(other)
    assert world.events == [("ready", 1), "settled", "settled"]
    assert [child.dismissed, other.dismissed] == [1, 0]
    assert world.children.recycled == {"soft-limit": 1}
    world.passes(REAP_SECONDS)
    assert (world.pool.maintained, world.killed) == (1, [])


def test_what_a_child_shares_does_not_count_against_its_soft_limit(world: World) -> None:
    child = world.starts(1)
    world.children.soft_kib = 200 * MIB
    world.rss[1], world.pss[1] = 900 * MIB, 199 * MIB
    world.runs(child)
    assert child.dismissed == 0


def test_in_single_job_mode_each_task_has_a_child_of_its_own(world: World) -> None:
    child = world.starts(1)
    world.children.single_job = True
    world.runs(child)
    assert (child.dismissed, world.children.ready, world.children.recycled) == (1, 0, {"single-job": 1})


@pytest.mark.parametrize("why", ["single-job", "max-tasks", "soft-limit", "held"])
def test_a_replacement_waits_for_the_rest_of_its_places_cooldown(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    world = World(monkeypatch, max_tasks=1 if why == "max-tasks" else 0)
    child = world.starts(1)
    world.children.cooldown_seconds, world.children.single_job = 3, why == "single-job"
    world.children.soft_kib = 1 if why == "soft-limit" else 0
    world.runs(child)
    if why == "held":
        world.children.recycle(1, why)
    world.passes(0.4)
    world.dies(child)
    replacement = world.starts(2, kib=0)
    assert (world.free(replacement), world.children.ready) == (False, 0)
    world.passes(2.5)
    assert not world.free(replacement)
    world.passes(0.1)
    assert (world.free(replacement), world.children.ready) == (True, 1)
    assert world.free(world.starts(3)), "the place of another child has no cooldown"


def test_a_replacement_that_starts_after_the_cooldown_does_not_wait(world: World) -> None:
    child = world.starts(1)
    world.children.cooldown_seconds, world.children.single_job = 3, True
    world.runs(child)
    world.dies(child)
    world.passes(3)
    assert world.free(world.starts(2))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_child_that_reached_its_ceiling_is_replaced(world: World, wrapped: bool) -> None:
    child = world.starts(1)
    error: Any = CeilingReached(exc=MemoryLimitExceeded("ml.detect", 0, 5))
    try:
        raise error
    except CeilingReached:
        info = ExceptionInfo()
    if not wrapped:
        info.exception = error
    world.runs(child, (True, (True, info, 0.1)))
    assert (child.dismissed, world.children.recycled) == (1, {"ceiling": 1})


def test_memory_error_at_the_ceiling_fails_the_task_not_the_worker(world: World) -> None:
    world.children.ceiling_kib, world.children.task_name = 500, lambda _: "ml.detect"
    child = world.starts(1)
    world.runs(child, (True, (True, as_einfo(MemoryError()), 0.1)))
    (_, (failed, info, _)) = world.pool.results[-1]
    assert failed
    assert str(getattr(info.exception, "exc", info.exception)).startswith("ml.detect asked for more memory than")
    assert world.children.recycled == {"ceiling": 1}


@pytest.mark.parametrize("as_reported", [as_einfo, lambda error: SimpleNamespace(exception=error)])
def test_retry_asked_for_a_memory_error_stays_a_retry_and_its_child_is_replaced(world: World, as_reported: Any) -> None:
    world.children.ceiling_kib, world.children.task_name = 500, lambda _: "ml.detect"
    asked = as_reported(Retry(exc=MemoryError(), when=1))
    world.runs(world.starts(1), (True, (True, asked, 0.1)))
    assert world.pool.results[-1] == (True, (True, asked, 0.1))
    assert world.children.recycled == {"ceiling": 1}


@pytest.mark.parametrize("result", [(False, None), (True, ()), (True, (True, SimpleNamespace(exception=ValueError())))])
def test_other_outcomes_say_nothing_of_the_ceiling(world: World, result: Any) -> None:
    child = world.starts(1)
    world.runs(child, result)
    assert child.dismissed == 0


def test_an_idle_child_is_recycled_at_once_and_only_once(world: World) -> None:
    child = world.starts(1)
    world.children.recycle(1, "held")
    world.children.recycle(1, "soft-limit")
    world.children.recycle(99, "held")
    assert (child.dismissed, world.free(child), world.children.ready) == (1, False, 0)
    assert world.children.recycled == {"held": 1}


def test_a_busy_child_is_recycled_after_its_task(world: World) -> None:
    child = world.starts(1)
    world.begins(child)
    world.children.recycle(1, "held")
    assert (child.dismissed, world.children.draining(1)) == (0, True)
    world.ends(child)
    assert world.events == [("ready", 0), "settled"]
    assert (child.dismissed, world.children.recycled) == (1, {"held": 1})


def test_a_task_is_interrupted_with_the_soft_time_limit_signal(world: World) -> None:
    child = world.starts(1)
    assert not world.children.interrupt(1)
    world.begins(child)
    assert world.children.interrupt(1)
    assert world.killed == [(1, signal.SIGUSR1)]


def test_an_ended_child_fails_its_task_with_the_reason(world: World) -> None:
    child = world.starts(1)
    assert not world.children.end(1, MemoryLimitExceeded("ml.detect", 900, 500))
    job = world.begins(child)
    assert world.children.end(1, MemoryLimitExceeded("ml.detect", 900, 500))
    assert world.killed == [(1, signal.SIGKILL)]
    succeeded, info = job.outcome
    assert not succeeded
    error = getattr(info.exception, "exc", info.exception)
    assert (type(error), error.args) == (MemoryLimitExceeded, ("ml.detect", 900, 500))
    assert child._controlled_termination
    assert world.children.ready == 0
    assert not world.children.end(1, MemoryLimitExceeded("ml.detect", 900, 500))


def test_first_sizes_are_kept_until_their_child_has_ended(world: World) -> None:
    ended = world.starts(1, 40 * MIB)
    world.children.recycle(1, "held")
    world.dies(ended)
    world.starts(2, 60 * MIB)
    world.starts(1, 70 * MIB)
    assert [world.children.fresh_kib(pid) for pid in (1, 2)] == [70 * MIB, 60 * MIB]
    assert not world.children.draining(1)
    assert world.closed == [1]


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("max_tasks", [0, 1], ids=["dismissed", "by itself"])
def test_a_draining_child_that_does_not_exit_is_killed(
    monkeypatch: pytest.MonkeyPatch, leaves: bool, max_tasks: int
) -> None:
    world = World(monkeypatch, max_tasks)
    child = world.starts(1)
    world.runs(child)
    world.children.recycle(1, "held")
    if leaves:
        world.dies(child)
        world.starts(1)  # Another process with the same pid.
    world.passes(LEAVE_SECONDS)
    assert world.killed == ([] if leaves else [(1, signal.SIGKILL)])


def test_a_cooldown_continues_in_a_new_loop(world: World) -> None:
    child, other = world.starts(1), world.starts(2)
    world.children.cooldown_seconds = 5
    world.runs(child)
    world.pool._busy_workers.clear()
    world.children.before_loop()
    assert [world.free(child), world.free(other)] == [False, True]
    world.passes(5)
    assert world.free(child)


def test_a_child_that_is_not_up_yet_takes_no_task(world: World) -> None:
    child = world.starts(1)
    world.pool._all_inqueues.clear()
    assert (world.children.ready, world.children.idle()) == (0, [])
    world.pool._all_inqueues.add(child.inqW_fd)
    assert (world.children.ready, world.children.idle()) == (1, [1])


def test_a_draining_child_that_reports_its_exit_is_killed(world: World) -> None:
    ended = world.starts(1)
    world.starts(2)
    world.children.recycle(1, "held")
    for pid in (1, 2):
        world.say(DEATH, pid, 0)
    assert world.killed == [(1, signal.SIGKILL)]
    assert ended._controlled_termination, "the pool reports no error for it"
    world.passes(REAP_SECONDS)
    assert world.pool.maintained >= 1
    assert ("death", 2, 0) in world.events
    assert ("death", 1, 0) not in world.events


def test_a_child_with_a_closed_pipe_can_join_the_next_loop(world: World) -> None:
    closed, whole, new = world.starts(1), world.starts(2), world.starts(3)
    closed._sentinel_poll, whole._sentinel_poll = None, 7
    world.children.before_loop()
    assert "_sentinel_poll" not in vars(closed)
    assert whole._sentinel_poll == 7
    assert "_sentinel_poll" not in vars(new)
