"""CPU in the policy: when it holds, and how it is announced."""

from itertools import pairwise

import pytest

from ami.governor.policy import Gate, announce, must_exit
from ami.governor.settings import GovernorSettings
from tests.support.governor.decision_inputs import ONE_PERCENT_KIB, drive, look

FULL = {"own_kib": 30 * ONE_PERCENT_KIB, "baseline_kib": 5 * ONE_PERCENT_KIB}


@pytest.mark.parametrize(
    ("thresholds", "cpus", "held"),
    [
        ({}, [100, 100, 100], [False, False, False]),
        ({"cpu_throttle_threshold": 90}, [89.9, 90, 80.1, 80], [False, True, True, False]),
        ({"cpu_throttle_threshold": 90, "cpu_resume_threshold": 50}, [95, 51, None, 50], [True, True, True, False]),
        ({"cpu_throttle_threshold": 5}, [6, 1, 0], [True, True, False]),
    ],
)
def test_cpu_holds_where_its_threshold_is_set(thresholds, cpus, held):
    settings = GovernorSettings(**thresholds)
    gates = drive(settings, [look(60 * number, 50, cpu=cpu) for number, cpu in enumerate(cpus)])
    assert [gate.held for gate in gates] == held
    assert all(gate.causes <= {"cpu"} for gate in gates)


def test_cpu_that_others_use_lets_one_task_through_and_ends_no_worker():
    settings = GovernorSettings(cpu_throttle_threshold=90)
    last = look(300, 50, cpu=99, **FULL)
    gate = drive(settings, [look(0, 50, cpu=99, **FULL), last])[-1]
    assert (gate.held, gate.admit_one) == (True, True)
    assert must_exit(settings, gate, last) is None


def test_cpu_is_announced_by_its_name_and_beside_memory():
    settings = GovernorSettings(cpu_throttle_threshold=90)
    looks = [look(0, 50, cpu=96.3), look(20, 50, cpu=70), look(80, 50, cpu=95), look(85, 93, cpu=95)]
    gates = [Gate(), *drive(settings, looks)]
    lines = [announce(*pair, inputs.sample) for pair, inputs in zip(pairwise(gates), looks, strict=True)]
    assert lines == [
        "🚨 CPU THROTTLE ACTIVE: CPU at 96.3% (throttle at 90%, host)",
        "✅ CPU THROTTLE RELEASED: CPU at 70.0% after 20 s",
        "🚨 CPU THROTTLE ACTIVE: CPU at 95.0% (throttle at 90%, host)",
        "🚨 MEMORY THROTTLE CHANGED: RAM at 93.0% (throttle at 90%, container); CPU at 95.0% (throttle at 90%, host)",
    ]
