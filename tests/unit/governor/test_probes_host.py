"""The host's memory, swap, pressure and processors."""

import errno
from pathlib import Path

import pytest

from ami.governor.probes import host as memory_of
from ami.governor.probes import pressure
from ami.governor.probes.cgroup import Cgroup
from tests.support.governor.proc_trees import MEMORY_V1, MIB, UNIFIED, host, member, v1, v2, write

PRESSURE = "some avg10={} avg60=2.00 avg300=3.00 total=400\nfull avg10=90.00 avg60=91.00 avg300=92.00 total=300".format


def test_used_is_what_is_not_available(tmp_path):
    host(tmp_path, total=4096 * MIB, available=3072 * MIB)

    assert memory_of.memory(tmp_path) == (1024 * MIB, 4096 * MIB)


def test_swap_is_in_percent_of_what_there_is(tmp_path):
    host(tmp_path, swap=(1000 * MIB, 250 * MIB))

    assert memory_of.swap_percent(tmp_path) == 75


def test_no_swap_space_is_none(tmp_path):
    assert memory_of.swap_percent(host(tmp_path)) is None


def test_a_meminfo_without_memavailable_is_an_error(tmp_path):
    write(tmp_path, "proc/meminfo", "MemTotal: 5 kB")

    with pytest.raises(ValueError, match="meminfo has no MemAvailable"):
        memory_of.memory(tmp_path)


def test_this_host_has_memory_in_use_and_some_left():
    used, total = memory_of.memory()

    assert 0 < used < total
    assert memory_of.swap_percent() is None or 0 <= memory_of.swap_percent() <= 100


def test_pressure_is_the_cgroups_own_on_v2(tmp_path):
    write(host(tmp_path), "proc/pressure/memory", PRESSURE("9.50"))
    member(tmp_path, "0::/worker", mounts=[UNIFIED.format(root="/")])
    write(v2(tmp_path, "worker"), "memory.pressure", PRESSURE("1.25"))

    assert pressure.some_avg10(tmp_path, Cgroup(tmp_path)) == 1.25


def test_pressure_is_the_hosts_on_v1(tmp_path):
    write(host(tmp_path), "proc/pressure/memory", PRESSURE("9.50"))
    member(tmp_path, "4:memory:/worker", mounts=[MEMORY_V1.format(root="/")])
    v1(tmp_path, "worker")

    assert pressure.some_avg10(tmp_path, Cgroup(tmp_path)) == 9.5


def test_pressure_is_the_hosts_where_the_cgroup_keeps_none(tmp_path):
    write(host(tmp_path), "proc/pressure/memory", PRESSURE("9.50"))
    member(tmp_path, "0::/worker", mounts=[UNIFIED.format(root="/")])
    v2(tmp_path, "worker")

    assert pressure.some_avg10(tmp_path, Cgroup(tmp_path)) == 9.5
    assert pressure.some_avg10(tmp_path) == 9.5


def test_a_kernel_without_pressure_is_none(tmp_path):
    assert pressure.some_avg10(host(tmp_path)) is None


def test_a_kernel_that_was_booted_without_pressure_is_none(tmp_path, monkeypatch):
    def refused(path):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported", str(path))

    monkeypatch.setattr(Path, "read_text", refused)

    assert pressure.some_avg10(tmp_path) is None


@pytest.mark.parametrize("text", ["", "full avg10=1.00 avg60=2.00", "some avg60=2.00", "some avg10=much"])
def test_a_broken_pressure_file_is_an_error(tmp_path, text):
    write(host(tmp_path), "proc/pressure/memory", text)

    with pytest.raises(ValueError):
        pressure.some_avg10(tmp_path)
