"""The kernel's kills in the worker's container since it started, on both versions of cgroups."""

from pathlib import Path

import pytest

from ami.governor.kernel_kills import KernelKills
from tests.support.governor.proc_trees import MEMORY_V1, MIB, UNIFIED, host, member, v1, v2, write


def in_unified(tmp_path: Path) -> tuple[Path, str]:
    root = host(tmp_path)
    member(root, "0::/worker", mounts=[UNIFIED.format(root="/")])
    return root, "sys/fs/cgroup/worker/memory.events"


def test_kills_before_the_start_do_not_count(tmp_path: Path) -> None:
    root, events = in_unified(tmp_path)
    v2(root, "worker", maximum=256 * MIB)
    write(root, events, "oom 4\noom_kill 3")
    kills = KernelKills(root)
    assert kills.count() == 0
    write(root, events, "oom 6\noom_kill 5")
    assert kills.count() == 2


def test_without_a_limit_or_a_counter_it_is_unknown(tmp_path: Path) -> None:
    root, events = in_unified(tmp_path)
    v2(root, "worker")
    write(root, events, "oom_kill 3")
    assert KernelKills(root).count() is None, "a host's slice counts everybody"


@pytest.mark.parametrize("lines", ["", "oom_kill many"])
def test_counter_that_cannot_be_read_is_unknown(tmp_path: Path, lines: str) -> None:
    root = host(tmp_path)
    member(root, "4:memory:/worker", mounts=[MEMORY_V1.format(root="/")])
    v1(root, "worker", limit=256 * MIB)
    write(root, "sys/fs/cgroup/memory/worker/memory.oom_control", lines)
    assert KernelKills(root).count() is None
