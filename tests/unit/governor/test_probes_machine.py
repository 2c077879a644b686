"""One sample of everything: the fuller of container and host, and failed probes."""

import pytest

from ami.governor.probes.machine import Machine
from tests.support.governor.proc_trees import MIB, UNIFIED, host, member, v2, write


class Broken:
    def percent(self):
        raise OSError("NVML failed: GPU is lost")


class Half:
    def percent(self):
        return 50.0


@pytest.fixture
def root(tmp_path):
    """A host a quarter full, with a cgroup for the worker."""
    host(tmp_path, total=4096 * MIB, available=3072 * MIB, swap=(100 * MIB, 90 * MIB))
    write(tmp_path, "proc/pressure/memory", "some avg10=3.00 avg60=0 avg300=0 total=0")
    member(tmp_path, "0::/worker", mounts=[UNIFIED.format(root="/")])
    return tmp_path


def test_everything_is_read(root):
    v2(root, "worker", 200 * MIB)
    now = 0.0
    machine = Machine(root, Half(), clock=lambda: now)
    machine.read()
    now = 15.0
    write(root, "proc/stat", "cpu  150 0 100 750 100 0 0 0 0 0")

    sample = machine.read()

    assert (sample.memory_used_bytes, sample.memory_limit_bytes) == (100 * MIB, 200 * MIB)
    assert (sample.scope, sample.memory_percent) == ("container", 50)
    assert (sample.swap_percent, sample.pressure_percent) == (10, 3)
    assert (sample.cpu_percent, sample.gpu_percent, sample.faults) == (50, 50, ())


def test_without_a_limit_the_memory_is_the_hosts(root):
    v2(root, "worker")

    sample = Machine(root, Half()).read()

    assert (sample.scope, sample.memory_used_bytes, sample.memory_limit_bytes) == ("host", 1024 * MIB, 4096 * MIB)


def test_a_host_that_is_fuller_than_the_container_counts(root):
    v2(root, "worker", 1000 * MIB)

    sample = Machine(root, Half()).read()

    assert (sample.scope, sample.memory_percent, sample.faults) == ("host", 25, ())


def test_an_unreadable_container_makes_memory_unknown(root):
    path = v2(root, "worker", 200 * MIB) / "memory.max"
    path.write_text("lots")

    sample = Machine(root, Half()).read()

    assert (sample.memory_used_bytes, sample.memory_limit_bytes, sample.memory_percent) == (None, None, None)
    assert sample.faults == (f"The memory probe failed: {path} contains 'lots', which is neither a number nor 'max'.",)
    assert (sample.swap_percent, sample.gpu_percent) == (10, 50)


def test_a_gpu_that_fails_leaves_the_rest(root):
    v2(root, "worker", 200 * MIB)

    sample = Machine(root, Broken()).read()

    assert (sample.gpu_percent, sample.faults) == (None, ("The GPU probe failed: NVML failed: GPU is lost.",))
    assert sample.memory_percent == 50


def test_an_error_without_text_is_reported_by_its_type(root):
    class Silent:
        def percent(self):
            raise KeyError

    assert Machine(root, Silent()).read().faults[-1] == "The GPU probe failed: KeyError."


def test_an_unreadable_machine_gives_only_faults(tmp_path):
    sample = Machine(tmp_path, Broken()).read()

    metrics = (sample.memory_percent, sample.swap_percent, sample.pressure_percent, sample.cpu_percent)
    assert metrics == (None, None, None, None)
    assert [fault.split(" failed")[0] for fault in sample.faults] == [
        "The memory probe",
        "The swap probe",
        "The pressure probe",
        "The CPU probe",
        "The GPU probe",
    ]


def test_a_probe_that_recovers_is_believed_again(root):
    path = v2(root, "worker", 200 * MIB) / "memory.max"
    machine = Machine(root, Half())
    path.write_text("lots")
    machine.read()
    path.write_text(str(400 * MIB))

    sample = machine.read()

    assert (sample.memory_percent, sample.faults) == (25, ())


def test_this_machine_is_read_without_a_fault():
    sample = Machine().read()

    assert sample.faults == ()
    assert 0 < sample.memory_percent <= 100
    assert sample.scope in ("container", "host")
