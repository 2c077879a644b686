"""The governor's settings: precedence, and what is refused with which sentence."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ami.environment.declaration import variables
from ami.governor.errors import GovernorError
from ami.governor.settings import GovernorSettings, GovernorVariables, load
from ami.topology.table import ROWS
from tests.support.examples import examples

ROW = next(row for row in ROWS if row.key == "INGEST")

#: Inclusive bounds by variable.
BOUNDS = {each.name: (each.low, each.high) for each in variables(GovernorVariables) if each.low is not None}

many = examples(50, 1000)


def test_defaults_are_the_seed_s():
    settings = load(ROW, {})
    assert (settings.memory_throttle_threshold, settings.memory_resume_threshold) == (90, 80)
    assert (settings.gpu_throttle_threshold, settings.gpu_resume_threshold) == (85, 75)
    assert (settings.swap_throttle_threshold, settings.memory_check_interval) == (70, 5)
    assert not settings.worker_single_job_mode
    assert (
        settings.master_grace_period_seconds == settings.worker_stagger_seconds == settings.worker_cooldown_seconds == 0
    )


def test_one_queue_goes_before_its_row_and_the_row_before_all_queues():
    row = replace(ROW, governor={"worker_cooldown_seconds": 2, "worker_stagger_seconds": 2.0})
    environ = {
        "WORKER_COOLDOWN_SECONDS": "1",
        "WORKER_STAGGER_SECONDS": "1",
        "MASTER_GRACE_PERIOD_SECONDS": "1",
        "ANTENNA_INGEST_WORKER_COOLDOWN_SECONDS": "3",
        "ANTENNA_HOUSEKEEPING_WORKER_COOLDOWN_SECONDS": "9",
    }
    settings = load(row, environ)
    assert settings.worker_cooldown_seconds == 3
    assert settings.worker_stagger_seconds == 2
    assert settings.master_grace_period_seconds == 1
    assert load(None, environ).worker_cooldown_seconds == 1


def test_empty_variable_is_no_value():
    assert load(ROW, {"MEMORY_CHECK_INTERVAL": "", "ANTENNA_INGEST_MEMORY_CHECK_INTERVAL": ""}) == GovernorSettings()


@pytest.mark.parametrize(
    ("raw", "value"), [("1", True), ("True", True), (" on ", True), ("0", False), ("no", False), ("OFF", False)]
)
def test_switches_are_read(raw, value):
    assert load(ROW, {"WORKER_SINGLE_JOB_MODE": raw}).worker_single_job_mode is value


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"MEMORY_CHECK_INTERVAL": "soon"}, "MEMORY_CHECK_INTERVAL is 'soon'; it must be a number"),
        ({"MEMORY_CHECK_INTERVAL": "0.1"}, "MEMORY_CHECK_INTERVAL is '0.1'; it must be a number from 0.2 to 300"),
        ({"MEMORY_CHECK_INTERVAL": "nan"}, "MEMORY_CHECK_INTERVAL is 'nan'"),
        ({"MEMORY_MAX_HOLD_SECONDS": "inf"}, "MEMORY_MAX_HOLD_SECONDS is 'inf'"),
        ({"MEMORY_THROTTLE_THRESHOLD": "0"}, "from 1 to 100"),
        ({"MEMORY_THROTTLE_THRESHOLD": "101"}, "from 1 to 100"),
        ({"MEMORY_RESUME_THRESHOLD": "90"}, r"MEMORY_RESUME_THRESHOLD \(90\) must be below MEMORY_THROTTLE_THRESHOLD"),
        ({"GPU_THROTTLE_THRESHOLD": "70"}, r"GPU_RESUME_THRESHOLD \(75\) must be below GPU_THROTTLE_THRESHOLD \(70\)"),
        ({"PRESSURE_RESUME_THRESHOLD": "30"}, "PRESSURE_RESUME_THRESHOLD"),
        ({"MEMORY_MAX_HOLD_SECONDS": "5"}, r"MEMORY_MAX_HOLD_SECONDS \(5\) is below MEMORY_MIN_HOLD_SECONDS \(10\)"),
        ({"CPU_RESUME_THRESHOLD": "50"}, "CPU_RESUME_THRESHOLD is set and CPU_THROTTLE_THRESHOLD is not"),
        (
            {"CPU_THROTTLE_THRESHOLD": "50", "CPU_RESUME_THRESHOLD": "50"},
            r"CPU_RESUME_THRESHOLD \(50\) must be below CPU_THROTTLE_THRESHOLD \(50\)",
        ),
        ({"CPU_THROTTLE_THRESHOLD": "0"}, "CPU_THROTTLE_THRESHOLD is '0'; it must be a number from 1 to 100"),
        ({"MEMORY_GOVERNOR": "yes"}, "MEMORY_GOVERNOR is 'yes'; use one of off, dry-run, on"),
        ({"MEMORY_RESERVATION": "1"}, "MEMORY_RESERVATION is '1'"),
        ({"WORKER_SINGLE_JOB_MODE": "maybe"}, "WORKER_SINGLE_JOB_MODE is 'maybe'; use 1 or 0"),
        ({"ANTENNA_INGEST_WORKER_COOLDOWN_SECONDS": "x"}, "ANTENNA_INGEST_WORKER_COOLDOWN_SECONDS is 'x'"),
        ({"ANTENNA_INGEST_MEMORY_RESUME_THRESHOLD": "95"}, r"\(queue antenna-ingest\)"),
    ],
)
def test_contradiction_is_refused_with_its_name_and_value(environ, sentence):
    with pytest.raises(GovernorError, match=sentence):
        load(ROW, environ)


@pytest.mark.parametrize(
    ("governor", "sentence"),
    [
        ({"worker_cooldown": 5.0}, "antenna-ingest: 'worker_cooldown' is not a setting of the governor. Did you mean"),
        ({"WORKER_COOLDOWN_SECONDS": 5.0}, "is not a setting of the governor"),
        ({"worker_cooldown_seconds": "5"}, "worker_cooldown_seconds is '5' in the topology table; it must be a float"),
        ({"worker_cooldown_seconds": True}, "it must be a float"),
        ({"worker_single_job_mode": "no"}, "worker_single_job_mode is 'no' in the topology table; it must be a bool"),
        ({"memory_governor": False}, "it must be a str"),
        ({"cpu_throttle_threshold": "90"}, "cpu_throttle_threshold is '90' in the topology table; it must be a float"),
        ({"memory_resume_threshold": 95}, r"must be below.*\(queue antenna-ingest\)"),
    ],
)
def test_row_that_says_nonsense_is_refused(governor, sentence):
    with pytest.raises(GovernorError, match=sentence):
        load(replace(ROW, governor=governor), {})


def test_every_number_has_bounds():
    numbers = {each.name for each in variables(GovernorVariables) if each.kind is float}
    assert numbers == set(BOUNDS)


@many
@given(st.sampled_from(sorted(BOUNDS)), st.floats())
def test_number_out_of_bounds_is_always_refused(name, value):
    low, high = BOUNDS[name]
    if low <= value <= high:
        return
    with pytest.raises(GovernorError, match=name):
        load(ROW, {name: repr(value)})


def test_every_row_of_the_table_is_accepted():
    assert [load(row, {}).memory_governor for row in ROWS] == ["on"] * len(ROWS)


def test_state_folder_is_one_per_node(tmp_path):
    settings = GovernorSettings(governor_state_dir=str(tmp_path))
    assert settings.state_folder("ingest@a/b") == tmp_path / "ingest@a_b"
    assert str(GovernorSettings().state_folder("ingest@a")).endswith("/ingest@a")
