"""Properties of the policy for any samples in any order."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ami.governor.policy import Gate, announce, decide, must_exit, next_check_seconds
from ami.governor.settings import GovernorSettings
from tests.support.examples import examples
from tests.support.governor.decision_inputs import (
    ONE_PERCENT_KIB,
    drive,
    governor_settings,
    look,
    many_looks,
    sample,
    samples,
)

many = examples(40, 1000)


@many
@given(governor_settings(), st.one_of(st.none(), samples), samples, st.floats(0, 60))
def test_next_look_is_never_hasty_and_never_late(settings, previous, current, elapsed):
    assert 0.2 <= next_check_seconds(settings, previous, current, elapsed) <= settings.memory_check_interval


@many
@given(governor_settings(), many_looks())
def test_never_released_before_the_minimum_hold(settings, looks):
    for (before, after), inputs in zip(pairwise(drive(settings, looks)), looks[1:], strict=True):
        if before.held and not after.held:
            assert inputs.now - before.since >= settings.memory_min_hold_seconds


@many
@given(st.booleans(), st.lists(st.tuples(st.floats(80.1, 89.9), st.floats(75.1, 84.9)), max_size=30))
def test_between_resume_and_throttle_nothing_changes(begins_held, between):
    first = look(0, 95, gpu=90) if begins_held else look(0, 10)
    looks = [look(20 * (i + 1), memory, gpu=gpu, swap=69, pressure=10) for i, (memory, gpu) in enumerate(between)]
    assert {gate.held for gate in drive(GovernorSettings(), [first, *looks])} == {begins_held}


@many
@given(governor_settings(), many_looks(paused=True, running=st.integers(0, 2)))
def test_pause_always_wins(settings, looks):
    for gate, inputs in zip(drive(settings, looks), looks, strict=True):
        assert ("paused" in gate.causes) == inputs.paused
        if inputs.paused:
            assert gate.held
            assert not gate.admit_one
            assert must_exit(settings, gate, inputs) is None


@many
@given(governor_settings(), many_looks(paused=True))
def test_a_pause_holds_no_longer_than_it_lasts(settings, looks):
    paused = drive(settings, [replace(inputs, sample=sample(10), paused=True) for inputs in looks])[-1]
    assert not decide(settings, paused, look(paused.checked_at, 10)).held


@many
@given(governor_settings(), many_looks(), st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_unknown_metrics_change_nothing_before_the_maximum_hold(settings, looks, parts):
    gate = drive(settings, looks)[-1]
    known_at = [trigger.known_at for trigger in gate.triggers]
    longest = settings.memory_max_hold_seconds
    if known_at:
        span = min(known_at) + longest - gate.checked_at
        blind = [look(gate.checked_at + part * span * 0.999) for part in sorted(parts) if span > 0]
        for after in drive(settings, blind, gate):
            assert (after.held, after.causes, after.since) == (True, gate.causes, gate.since)
    assert not decide(settings, gate, look(gate.checked_at + longest + 0.001)).held


@many
@given(governor_settings(), samples, st.lists(st.floats(0.2, 60), min_size=5, max_size=60))
def test_constant_reading_settles(settings, constant, betweens):
    now, looks = 0.0, []
    for between in betweens:
        now += between
        looks.append(replace(look(now), sample=constant))
    assert len({gate.held for gate in drive(settings, looks)}) == 1


@many
@given(
    governor_settings(),
    many_looks(
        own_kib=st.integers(0, 100 * ONE_PERCENT_KIB),
        baseline_kib=st.integers(0, 20 * ONE_PERCENT_KIB),
        can_recycle=st.booleans(),
    ),
)
def test_idle_worker_is_never_held_for_ever(settings, looks):
    for gate, inputs in zip(drive(settings, looks), looks, strict=True):
        exits = must_exit(settings, gate, inputs)
        assert not (gate.admit_one and exits)
        if gate.held and inputs.now - gate.since >= settings.memory_max_hold_seconds:
            assert gate.admit_one or exits


@many
@given(governor_settings(), many_looks(paused=True, running=st.integers(0, 2)))
def test_held_has_reasons_and_released_has_none(settings, looks):
    for gate in drive(settings, looks):
        assert gate.held == bool(gate.reasons) == bool(gate.causes)
        assert gate.held or not gate.admit_one


@many
@given(governor_settings(), many_looks(paused=True))
def test_every_change_has_a_line(settings, looks):
    gates = [Gate(), *drive(settings, looks)]
    for (before, after), inputs in zip(pairwise(gates), looks, strict=True):
        if before.held != after.held or ("paused" in before.causes) != ("paused" in after.causes):
            assert announce(before, after, inputs.sample)
        assert announce(after, after, inputs.sample) is None
