"""The policy: when a worker holds, for how long, what ends a hold, and the log lines."""

from dataclasses import replace
from itertools import pairwise

import pytest

from ami.governor.policy import Gate, announce, decide, must_exit, next_check_seconds
from ami.governor.sample import Sample
from ami.governor.settings import GovernorSettings
from tests.support.governor.decision_inputs import ONE_PERCENT_KIB, drive, look, sample

SETTINGS = GovernorSettings()
FULL = {"own_kib": 30 * ONE_PERCENT_KIB, "baseline_kib": 5 * ONE_PERCENT_KIB}


@pytest.mark.parametrize(
    ("metrics", "causes"),
    [
        ({"memory": 89.9}, set()),
        ({"memory": 90}, {"memory"}),
        ({"swap": 69.9}, set()),
        ({"swap": 70}, {"swap"}),
        ({"gpu": 84.9}, set()),
        ({"gpu": 85}, {"gpu"}),
        ({"pressure": 19.9}, set()),
        ({"pressure": 20}, {"pressure"}),
        ({"pressure": 60, "memory": 79.9}, set()),
        ({"pressure": 60, "memory": 80}, {"pressure"}),
        ({"memory": 95, "swap": 95, "gpu": 95, "pressure": 95}, {"memory", "swap", "gpu", "pressure"}),
        ({}, set()),
    ],
)
def test_each_metric_holds_from_its_threshold_on(metrics, causes):
    gate = decide(SETTINGS, Gate(), look(100, **metrics))
    assert gate.held == bool(causes)
    assert gate.causes == causes
    assert len(gate.reasons) == len(causes)


@pytest.mark.parametrize(
    ("holds", "still", "released"),
    [
        ({"memory": 90}, {"memory": 80.1}, {"memory": 80}),
        ({"swap": 70}, {"swap": 70}, {"swap": 69.9}),
        ({"gpu": 85}, {"gpu": 75.1}, {"gpu": 75}),
        ({"pressure": 20}, {"pressure": 5.1}, {"pressure": 5}),
        ({"memory": 90, "pressure": 60}, {"memory": 81, "pressure": 60}, {"memory": 79, "pressure": 60}),
        ({"memory": 90, "gpu": 90}, {"memory": 50, "gpu": 80}, {"memory": 50, "gpu": 70}),
    ],
)
def test_each_metric_releases_at_its_own_resume_threshold(holds, still, released):
    gates = drive(SETTINGS, [look(0, **holds), look(60, **still), look(120, **released)])
    assert [gate.held for gate in gates] == [True, True, False]


def test_metric_that_did_not_trigger_does_not_keep_the_hold():
    gates = drive(SETTINGS, [look(0, 85, gpu=90), look(60, 85, gpu=70)])
    assert [gate.causes for gate in gates] == [{"gpu"}, set()]


def test_metric_that_rises_again_in_the_minimum_hold_keeps_it():
    gates = drive(SETTINGS, [look(0, 91), look(5, 79), look(11, 85), look(12, 80)])
    assert [sorted(gate.causes) for gate in gates] == [["memory"], ["settling"], ["memory"], []]


def test_metric_unknown_after_the_minimum_hold_keeps_the_hold():
    gates = drive(SETTINGS, [look(0, 95), look(5, 70), look(20), look(21, 70)])
    assert [gate.held for gate in gates] == [True, True, True, False]


def test_metric_unknown_for_the_maximum_hold_is_dropped():
    gates = drive(SETTINGS, [look(0, 95), look(5, 95), look(304), look(305)])
    assert [gate.held for gate in gates] == [True, True, True, False]


def test_reasons_name_the_number_the_threshold_and_whose_memory_it_is():
    held, falling, settling = drive(SETTINGS, [look(0, 91.2), look(2, 85), look(4, 70)])
    assert held.reasons == ("RAM at 91.2% (throttle at 90%, container)",)
    assert falling.reasons == ("RAM at 85.0% (resume at 80%, container)",)
    assert settling.reasons[1] == "back, but held for at least 10 s (6 s left)"


def test_grace_period_holds_with_the_seconds_left_and_ends_at_once():
    settings = GovernorSettings(master_grace_period_seconds=15)
    early, late = drive(settings, [look(103, 10, started_at=100), look(115, 10, started_at=100)])
    assert early.causes == {"grace"}
    assert early.reasons == ("just started: takes its first task in 12 s (grace period 15 s)",)
    assert not late.held


def test_flapping_doubles_the_minimum_hold_up_to_the_maximum():
    settings = GovernorSettings(memory_min_hold_seconds=10, memory_max_hold_seconds=60)
    gate, now, held_for = Gate(), 0.0, []
    for _ in range(5):
        gate = decide(settings, gate, look(now, 95))
        since = now
        while gate.held:
            now += 1
            gate = decide(settings, gate, look(now, 50))
        held_for.append(now - since)
        now += 15
    assert held_for == [10, 20, 40, 60, 60]
    gate = decide(settings, gate, look(now + 30, 95))
    assert gate.hold_for_seconds == 10, "a quiet spell forgets the flapping"


def test_one_task_is_admitted_per_maximum_hold():
    first = drive(SETTINGS, [look(now, 95) for now in (0, 299, 300, 310)])
    assert [gate.admit_one for gate in first] == [False, False, True, True]
    running = decide(SETTINGS, first[-1], look(315, 95, running=1))
    assert not running.admit_one
    assert running.held
    assert running.admitted_at == 315
    after = drive(SETTINGS, [look(now, 95) for now in (320, 614, 615)], running)
    assert [gate.admit_one for gate in after] == [False, False, True]


def test_task_that_ran_between_two_checks_was_the_admitted_one():
    gates = drive(SETTINGS, [look(0, 95, started=7), look(300, 95, started=7), look(305, 95, started=8)])
    assert [gate.admit_one for gate in gates] == [False, True, False]
    assert gates[-1].admitted_at == 305


def test_no_task_is_admitted_while_others_run():
    assert not any(gate.admit_one for gate in drive(SETTINGS, [look(now, 95, running=1) for now in (0, 300, 600)]))


def test_full_gpu_does_not_hold_for_ever():
    assert drive(SETTINGS, [look(now, gpu=95) for now in (0, 300)])[-1].admit_one


def _held(memory=95, seconds=60.0, **inputs):
    looks = [look(0, memory, **inputs), look(seconds, memory, **inputs)]
    return drive(SETTINGS, looks)[-1], looks[-1]


def test_worker_that_holds_the_memory_itself_exits_with_the_numbers():
    assert must_exit(SETTINGS, *_held(**FULL)) == (
        "Nothing runs and nothing is left to recycle, and this worker's own processes hold 30720 MiB where fresh ones "
        "need 5120 MiB: RAM at 95.0% (throttle at 90%, container). It exits for its supervisor to restart it."
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"running": 1},
        {"can_recycle": True},
        {"paused": True},
        {"seconds": 9.0},
        {"own_kib": 19 * ONE_PERCENT_KIB},
        {"baseline_kib": 0},
        {"baseline_kib": 30 * ONE_PERCENT_KIB},
        {"memory": None},
        {"memory": 85},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_worker_does_not_exit_when(changed):
    assert must_exit(SETTINGS, *_held(**{**FULL, **changed})) is None


def test_task_that_began_after_the_look_is_not_ended_with_the_worker():
    gate, inputs = _held(**FULL)
    assert must_exit(SETTINGS, gate, replace(inputs, running=1)) is None


def test_worker_never_exits_for_the_gpu_but_lets_one_task_through():
    most = {"own_kib": 60 * ONE_PERCENT_KIB, "baseline_kib": 5 * ONE_PERCENT_KIB}
    gate, inputs = _held(memory=70, gpu=95, seconds=300, **most)
    assert must_exit(SETTINGS, gate, inputs) is None
    assert gate.admit_one


def test_slow_looks_do_not_delay_the_exit_beyond_the_maximum_hold():
    settings = GovernorSettings(memory_check_interval=60, memory_max_hold_seconds=60)
    looks = [look(0, 95, **FULL), look(60, 95, **FULL)]
    assert must_exit(settings, drive(settings, looks)[-1], looks[-1])


def test_half_of_the_limit_is_the_worker_s_own_fault_whatever_ram_says():
    half = {"own_kib": 55 * ONE_PERCENT_KIB, "baseline_kib": 5 * ONE_PERCENT_KIB}
    assert must_exit(SETTINGS, *_held(memory=80, swap=90, **half))
    assert must_exit(SETTINGS, *_held(memory=80, swap=90, **{**half, "own_kib": 54 * ONE_PERCENT_KIB})) is None


def test_little_memory_is_worth_no_exit():
    small = Sample(900 * 1024**2, 1000 * 1024**2)
    for own_mib, exits in ((164, False), (165, True)):
        inputs = replace(look(0), sample=small, own_kib=own_mib * 1024, baseline_kib=100 * 1024)
        settings = GovernorSettings(memory_resume_threshold=89)
        gate = drive(settings, [inputs, replace(inputs, now=60)])[-1]
        assert bool(must_exit(settings, gate, replace(inputs, now=60))) is exits


def test_unrecyclable_child_does_not_prevent_the_exit_for_ever():
    assert must_exit(SETTINGS, *_held(seconds=299, **FULL, can_recycle=True)) is None
    assert must_exit(SETTINGS, *_held(seconds=300, **FULL, can_recycle=True))


def test_task_that_just_ended_is_given_time_to_give_its_memory_back():
    looks = [look(0, 95, running=1, **FULL), look(100, 95, running=1, **FULL), look(105, 95, **FULL)]
    gates = drive(SETTINGS, looks)
    assert must_exit(SETTINGS, gates[-1], looks[-1]) is None
    later = look(110, 95, **FULL)
    assert must_exit(SETTINGS, decide(SETTINGS, gates[-1], later), later)


@pytest.mark.parametrize(
    ("before", "now", "seconds"),
    [
        (50, 60, 5),  # 15 s to go at 2 % a second
        (50, 80, 5 / 3),
        (50, 89.9, 0.2),
        (60, 50, 5),
        (60, 60, 5),
        (50, 95, 5),
        (None, 80, 5),
        (80, None, 5),
    ],
)
def test_next_check_comes_before_the_threshold_is_crossed(before, now, seconds):
    assert next_check_seconds(SETTINGS, sample(before), sample(now), 5) == pytest.approx(seconds)


def test_changes_are_announced_in_the_seed_s_manner():
    looks = [
        look(0, 50),
        look(5, 91.2),
        look(10, 92, swap=71),
        look(15, 92, swap=71),
        look(40, 78, swap=60),
        look(45, 78, paused=True),
        look(50, 78),
    ]
    gates = [Gate(), *drive(SETTINGS, looks)]
    lines = [announce(*pair, inputs.sample) for pair, inputs in zip(pairwise(gates), looks, strict=True)]
    assert lines == [
        None,
        "🚨 MEMORY THROTTLE ACTIVE: RAM at 91.2% (throttle at 90%, container)",
        "🚨 MEMORY THROTTLE CHANGED: RAM at 92.0% (throttle at 90%, container); swap at 71.0% (throttle at 70%)",
        None,
        "✅ MEMORY THROTTLE RELEASED: RAM at 78.0%, swap at 60.0% after 35 s",
        "⏸️ PAUSED by the operator",
        "▶️ PAUSE ENDED by the operator",
    ]


def test_pause_that_ends_under_a_throttle_says_what_still_holds():
    before, after = drive(SETTINGS, [look(0, 95, paused=True), look(5, 95)])
    assert announce(Gate(), before, sample(95)) == (
        "⏸️ PAUSED by the operator | 🚨 MEMORY THROTTLE ACTIVE: paused by the operator; "
        "RAM at 95.0% (throttle at 90%, container)"
    )
    assert announce(before, after, sample(95)) == (
        "▶️ PAUSE ENDED by the operator; still held: RAM at 95.0% (throttle at 90%, container)"
    )


def test_task_let_through_and_grace_period_are_announced():
    settings = GovernorSettings(master_grace_period_seconds=15)
    early, late = drive(settings, [look(0, 10, started_at=0), look(15, 10, started_at=0)])
    assert announce(Gate(), early, sample(10)).startswith("⏳ GRACE PERIOD: just started: takes its first task in 15 s")
    assert announce(early, late, sample(10)) == "▶️ GRACE PERIOD OVER"
    before, after = drive(SETTINGS, [look(0, 95), look(300, 95)])
    assert "nothing ran for 300 s, so one task is let through: RAM at 95.0%" in announce(before, after, sample(95))


def test_a_full_swap_with_memory_to_spare_does_not_hold():
    assert not drive(SETTINGS, [look(0, 30, swap=95)])[-1].held
    assert drive(SETTINGS, [look(0, 85, swap=95)])[-1].held
