"""How many children a container holds: by the row, by the cgroup, or by the machine, whichever is smallest."""

from dataclasses import replace

import pytest

from ami.governor.container_capacity import children_held
from ami.topology import topology
from ami.topology.table import ROWS
from ami.topology.workload import PARENT_MEMORY_KIB
from tests.support.governor.proc_trees import MEMORY_V1, MIB, UNIFIED, host, member, v1, v2

#: Children of 256 MiB (and an eighth), a parent of 192 MiB and a container for four of them.
ROW = replace(ROWS[-1], concurrency=4, max_memory_per_child_kib=256 * 1024, hard_memory_per_child_kib=None)


@pytest.fixture
def root(tmp_path):
    """A host of 4 GiB with cgroups of version 2 and no limit."""
    host(tmp_path)
    member(tmp_path, "0::/slice/worker", mounts=[UNIFIED.format(root="/")])
    v2(tmp_path, "slice/worker")
    return tmp_path


def bytes_for(children):
    """Memory for so many children and their parent."""
    return (children * ROW.child_limit_kib + PARENT_MEMORY_KIB) * 1024


def test_rows_container_decides_on_a_large_machine(root):
    host(root, total=64 * 1024 * MIB)

    assert children_held(ROW, root) == 4
    assert children_held(replace(ROW, container_memory_kib=bytes_for(9) // 1024), root) == 9


def test_every_row_of_the_table_holds_its_own_children(root):
    host(root, total=64 * 1024 * MIB)

    held = {row.queue: children_held(row, root) for row in topology.complete().workloads}

    assert held == {row.queue: row.concurrency for row in topology.complete().workloads}


@pytest.mark.parametrize(("memory", "held"), [(bytes_for(3), 3), (bytes_for(3) - MIB, 2), (100 * MIB, 1)])
def test_machine_smaller_than_the_container_decides(root, memory, held):
    host(root, total=memory, available=memory // 2)

    assert children_held(ROW, root) == held


def test_smallest_limit_of_a_cgroup_and_its_parents_decides(root):
    v2(root, "slice/worker", maximum=bytes_for(3))
    v2(root, "slice", high=bytes_for(2), anon=0)

    assert children_held(ROW, root) == 2


def test_limit_of_cgroup_version_one_decides(tmp_path):
    host(tmp_path)
    member(tmp_path, "4:memory:/docker/worker", mounts=[MEMORY_V1.format(root="/")])
    v1(tmp_path, "")
    v1(tmp_path, "docker/worker", limit=bytes_for(2), hierarchical=bytes_for(2))

    assert children_held(ROW, tmp_path) == 2


def test_unreadable_figures_are_left_out(tmp_path):
    assert children_held(ROW, tmp_path) == 4
