"""Every probe of a container on the cgroup v2 tree that the kernel's documentation describes."""

from pathlib import Path

from ami.governor.container_capacity import children_held
from ami.governor.probes.cgroup import Cgroup
from ami.governor.probes.cpu import Cpu
from ami.governor.probes.machine import Machine
from ami.topology.topology import load
from tests.support.governor.documented_cgroup_v2 import documented
from tests.support.governor.proc_trees import MIB, write


def test_memory_is_what_cannot_be_dropped_of_the_documented_limit(tmp_path: Path):
    folder = documented(tmp_path)
    cgroup = Cgroup(tmp_path)
    assert (cgroup.version, cgroup.path) == (2, folder)
    # inactive_anon + active_anon + unevictable, slab_unreclaimable, kernel_stack and sock: no page cache.
    assert cgroup.memory() == ((150 + 70 + 10 + 1 + 1) * MIB, 1024 * MIB)
    assert cgroup.limit() == 1024 * MIB
    assert cgroup.kernel_kills() == 2


def test_sample_has_the_containers_memory_pressure_and_cpu(tmp_path: Path):
    folder, now = documented(tmp_path), 0.0
    machine = Machine(tmp_path, clock=lambda: now)
    first = machine.read()
    now = 15.0
    stat = folder / "cpu.stat"
    stat.write_text(stat.read_text().replace("usage_usec 60000000", "usage_usec 78000000"))
    write(tmp_path, "proc/stat", "cpu  110 0 100 790 100 0 0 0 0 0")
    second = machine.read()
    assert (first.faults, second.faults) == ((), ())
    assert (second.scope, second.pressure_percent) == ("container", 2.5)
    # 18 s of processor time in 15 s, of a quota of 1.5 cores.
    assert (first.cpu_percent, second.cpu_scope, second.cpu_percent) == (None, "container", 80)


def test_container_holds_as_many_children_as_its_limit(tmp_path: Path):
    documented(tmp_path)
    row = load({}).workload("antenna")
    held = children_held(row, tmp_path)
    assert held == max(1, (1024 * 1024 - 192 * 1024) // row.child_limit_kib)


def test_a_root_cgroup_limits_nothing(tmp_path: Path):
    documented(tmp_path)
    write(tmp_path, "proc/self/cgroup", "0::/")
    assert Cgroup(tmp_path).limit() is None
    cpu = Cpu(tmp_path, clock=iter((0.0, 15.0)).__next__)
    cpu.percent()
    write(tmp_path, "proc/stat", "cpu  110 0 100 790 100 0 0 0 0 0")
    assert cpu.percent() == ("host", 10)
