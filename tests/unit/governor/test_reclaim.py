"""Reclaiming: which children are recycled, marked, interrupted or ended, and in what order."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ami.governor.policy import Gate, decide
from ami.governor.reclaim import MIN_GROWTH_KIB, Child, over_limit, reclaim_actions
from ami.governor.settings import GovernorSettings
from tests.support.examples import examples
from tests.support.governor.decision_inputs import drive, look

MIB = 1024
SETTINGS = GovernorSettings()
INTERRUPTS = GovernorSettings(memory_interrupt_busy=True)
HELD = drive(SETTINGS, [look(0, 95), look(10, 95)])[-1]

children = st.lists(
    st.builds(
        Child,
        pid=st.integers(1, 10**6),
        pss_kib=st.integers(0, 400 * MIB),
        fresh_kib=st.integers(0, 200 * MIB),
        task=st.sampled_from([None, "ml.detect", "jobs.save"]),
        draining=st.booleans(),
        interrupted=st.booleans(),
    ),
    unique_by=lambda child: child.pid,
    max_size=12,
)

many = examples(50, 1000)


def child(pid, pss_mib, task=None, fresh_mib=50, **rest):
    return Child(pid, pss_mib * MIB, fresh_mib * MIB, task, **rest)


def taken(found):
    return [(action.kind, action.pid) for action in found]


def test_idle_are_recycled_and_busy_marked_largest_first():
    found = reclaim_actions(SETTINGS, HELD, [child(1, 100), child(2, 300, "ml.detect"), child(3, 200), child(4, 66)])
    assert taken(found) == [("recycle-after", 2), ("recycle-idle", 3), ("recycle-idle", 1)]
    assert found[0].reason == "child that runs ml.detect: it grew by 250 MiB"
    assert found[1].reason == "idle child: it grew by 150 MiB"


def test_child_is_marked_once():
    assert (
        reclaim_actions(SETTINGS, HELD, [child(1, 300, draining=True), child(2, 300, "ml.detect", draining=True)]) == []
    )


@pytest.mark.parametrize(
    ("inputs", "acts"),
    [
        (look(0, 95), True),
        (look(0, swap=75), True),
        (look(0, 85, pressure=50), True),
        (look(0, 95, paused=True), True),
        (look(0, 50, gpu=95), False),
        (look(0, 50, paused=True), False),
        (look(0, 50), False),
    ],
)
def test_memory_is_reclaimed_only_while_it_holds(inputs, acts):
    assert bool(reclaim_actions(SETTINGS, decide(SETTINGS, Gate(), inputs), [child(1, 300)])) is acts


def test_reclaiming_stops_during_the_rest_of_a_minimum_hold():
    settling = drive(SETTINGS, [look(0, 95), look(5, 50)])[-1]
    assert settling.held
    assert reclaim_actions(SETTINGS, settling, [child(1, 300)]) == []


BUSY = [child(1, 200, "jobs.save", draining=True), child(2, 300, "ml.detect", draining=True, ran_seconds=40)]


def test_largest_busy_child_is_interrupted_as_the_last_resort():
    found = reclaim_actions(INTERRUPTS, HELD, BUSY)
    assert taken(found) == [("interrupt-busy", 2)]
    assert found[0].reason == ("child that runs ml.detect grew by 250 MiB in 40 s and no idle child is left to recycle")


@pytest.mark.parametrize(
    ("settings", "gate", "others"),
    [
        (SETTINGS, HELD, BUSY),
        (INTERRUPTS, replace(HELD, checked_at=9.9), BUSY),
        (INTERRUPTS, HELD, [*BUSY, child(3, 100)]),
        (INTERRUPTS, HELD, [*BUSY, child(3, 100, draining=True)]),
        (INTERRUPTS, HELD, [BUSY[0], replace(BUSY[1], interrupted=True)]),
        (INTERRUPTS, HELD, [child(1, 60, "jobs.save")]),
        (INTERRUPTS, decide(INTERRUPTS, HELD, look(60, 50, gpu=95)), BUSY),
    ],
    ids=["not allowed", "too early", "idle left", "idle leaving", "one at a time", "not worth it", "not memory"],
)
def test_no_child_is_interrupted_when(settings, gate, others):
    assert "interrupt-busy" not in {action.kind for action in reclaim_actions(settings, gate, others)}


def test_minimum_hold_before_an_interruption_counts_memory_only():
    gates = drive(INTERRUPTS, [look(0, 50, gpu=95), look(100, 95, gpu=95)])
    assert reclaim_actions(INTERRUPTS, gates[-1], BUSY) == []


@many
@given(children, st.booleans(), st.integers(0, 100))
def test_no_busy_child_is_recycled_and_one_interrupted_at_most(found, interrupts, seconds):
    settings = SETTINGS.model_copy(update={"memory_interrupt_busy": interrupts})
    by_pid = {child.pid: child for child in found}
    actions = reclaim_actions(settings, replace(HELD, checked_at=float(seconds)), found)
    for action in actions:
        chosen = by_pid[action.pid]
        assert (chosen.task is None) == (action.kind == "recycle-idle")
        assert chosen.pss_kib - chosen.fresh_kib > MIN_GROWTH_KIB
        assert action.kind == "interrupt-busy" or not chosen.draining
    assert [action.kind for action in actions].count("interrupt-busy") <= interrupts
    recycled = [by_pid[action.pid].pss_kib for action in actions if action.kind != "interrupt-busy"]
    assert recycled == sorted(recycled, reverse=True)


@many
@given(children)
def test_every_fat_idle_child_is_recycled(found):
    fat = {c.pid for c in found if c.task is None and not c.draining and c.pss_kib > c.fresh_kib + MIN_GROWTH_KIB}
    assert {action.pid for action in reclaim_actions(SETTINGS, HELD, found) if action.kind == "recycle-idle"} == fat


def test_child_over_its_limits_is_recycled_marked_or_ended():
    found = [child(5, 200, draining=True), child(6, 200, "ml.detect", draining=True), child(7, 150)]
    assert over_limit(found, 150 * MIB, 300 * MIB) == []
    found = [child(1, 151), child(2, 152, "ml.detect"), child(3, 301, "jobs.save", draining=True), child(4, 302)]
    assert taken(over_limit(found, 150 * MIB, 300 * MIB)) == [
        ("recycle-idle", 4),
        ("end", 3),
        ("recycle-after", 2),
        ("recycle-idle", 1),
    ]
    assert over_limit(found, 150 * MIB, 300 * MIB)[1].reason == (
        "child that runs jobs.save has 308224 KiB; the limit is 307200"
    )


def test_limit_of_zero_is_none():
    assert over_limit([child(1, 300), child(2, 300, "ml.detect")], 0, 0) == []


def test_child_born_too_big_is_not_recycled_for_ever():
    assert over_limit([child(1, 200, fresh_mib=200)], 150 * MIB, 0) == []
    assert over_limit([child(1, 201, fresh_mib=200)], 150 * MIB, 0)


@many
@given(children, st.integers(0, 400 * MIB), st.integers(0, 400 * MIB))
def test_children_under_their_limits_are_left_alone(found, soft_kib, hard_kib):
    by_pid = {child.pid: child for child in found}
    named = over_limit(found, soft_kib, hard_kib)
    assert len(named) == len({action.pid for action in named})
    for action in named:
        chosen = by_pid[action.pid]
        limit = hard_kib if action.kind == "end" else soft_kib
        assert chosen.pss_kib > limit > 0
        assert (chosen.task is None) == (action.kind == "recycle-idle")
    ended = {action.pid for action in named if action.kind == "end"}
    assert ended == {c.pid for c in found if c.task and c.pss_kib > hard_kib > 0 and c.grown_kib > MIN_GROWTH_KIB}


def test_used_idle_children_are_recycled_while_the_gpu_holds():
    gate = Gate(held=True, causes=frozenset({"gpu"}))
    found = [
        Child(1, 100, 100, None, used=True),
        Child(2, 100, 100, None),
        Child(3, 100, 100, "ml.detect", used=True),
        Child(4, 100, 100, None, used=True, draining=True),
    ]
    assert [(action.kind, action.pid) for action in reclaim_actions(GovernorSettings(), gate, found)] == [
        ("recycle-idle", 1)
    ]
