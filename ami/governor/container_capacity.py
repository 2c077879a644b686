"""How many children of a prefork pool a container holds, each at its hard memory limit."""

from collections.abc import Callable
from pathlib import Path

from ami.governor.probes import host
from ami.governor.probes.cgroup import Cgroup
from ami.topology.workload import PARENT_MEMORY_KIB, Workload


def children_held(row: Workload, root: Path = Path("/")) -> int:
    """Return how many children of ``row.child_limit_kib`` fit beside their parent; at least 1.

    The memory is the smallest of the row's container, the limits of the process's cgroups and the host's memory; one
    that cannot be read is left out. Only prefork pools have children: for any other pool the number means nothing.
    """
    known = (row.memory_limit_kib, _kib(lambda: Cgroup(root).limit()), _kib(lambda: host.memory(root)[1]))
    memory_kib = min(each for each in known if each is not None)
    return max(1, (memory_kib - PARENT_MEMORY_KIB) // row.child_limit_kib)


def _kib(probe: Callable[[], int | None]) -> int | None:
    try:
        found = probe()
    except (OSError, ValueError):
        return None
    return None if found is None else found // 1024
