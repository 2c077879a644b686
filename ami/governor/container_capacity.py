"""How many children of a prefork pool a container holds at their hard memory limit, and how many its cores serve."""

from collections.abc import Callable
from pathlib import Path

from celery.utils.sysinfo import cpu_budget

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


#: What is left of the cores for the parent and its neighbours.
CORES_USED = 0.9


def auto_concurrency(row: Workload, is_prefork: bool, held: int) -> tuple[int, str]:
    """Return how many tasks a worker runs at the same time under ``auto``, and a sentence about it.

    That is nine tenths, rounded, of what Celery's own ``auto`` takes: the processors that the process may use, for a
    prefork pool at most the CPU quota. A prefork pool has no more than ``held`` children.
    """
    budget = cpu_budget(use_cgroup_quota=is_prefork)
    wanted = max(1, round(CORES_USED * budget.count))
    number = min(wanted, held) if is_prefork else wanted
    memory = f"; its memory holds {held}" if is_prefork else ""
    quota = "" if budget.quota is None else f" (a quota of {budget.quota:g})"
    return number, f"The concurrency of {row.queue} is {number}: 90% of {budget.count} cores{quota}{memory}."


def _kib(probe: Callable[[], int | None]) -> int | None:
    try:
        found = probe()
    except (OSError, ValueError):
        return None
    return None if found is None else found // 1024
