"""A cgroup v2 tree as the kernel documents it: every file of a container with a quota and a limit, with its source.

Written from the kernel's Documentation/admin-guide/cgroup-v2.rst, section by section; the numbers are ours. It is not
a copy of a real container's files.
"""

from pathlib import Path

from tests.support.governor.proc_trees import MIB, UNIFIED, host, member, write

#: The folder of the container's cgroup, and that of the pod around it.
CONTAINER, POD = "kubepods.slice/pod.slice/worker.scope", "kubepods.slice/pod.slice"

_STAT = {
    "anon": 200 * MIB,
    "file": 700 * MIB,
    "kernel_stack": 1 * MIB,
    "slab": 30 * MIB,
    "sock": 1 * MIB,
    "shmem": 20 * MIB,
    "file_mapped": 50 * MIB,
    "file_dirty": 4096,
    "file_writeback": 0,
    "anon_thp": 0,
    "inactive_anon": 150 * MIB,
    "active_anon": 70 * MIB,
    "inactive_file": 400 * MIB,
    "active_file": 280 * MIB,
    "unevictable": 0,
    "slab_reclaimable": 20 * MIB,
    "slab_unreclaimable": 10 * MIB,
    "pgfault": 123456,
    "pgmajfault": 12,
}

#: Each file: its section in cgroup-v2.rst, and its content.
FILES = {
    "cgroup.controllers": ("Core Interface Files: space separated, non-root and root", "cpuset cpu io memory pids"),
    "cgroup.type": ("Core Interface Files: domain, on non-root cgroups", "domain"),
    "cgroup.procs": ("Core Interface Files: one PID per line", "1"),
    "memory.current": ("Memory Interface Files: a single value", str(960 * MIB)),
    "memory.high": ("Memory Interface Files: the default is max", "max"),
    "memory.max": ("Memory Interface Files: a single value or max", str(1024 * MIB)),
    "memory.events": (
        "Memory Interface Files: flat-keyed",
        "low 0\nhigh 0\nmax 41\noom 3\noom_kill 2",
    ),
    "memory.stat": (
        "Memory Interface Files: flat-keyed, keys may be added in the middle",
        "\n".join(f"{name} {number}" for name, number in _STAT.items()),
    ),
    "memory.swap.current": ("Memory Interface Files: a single value", "0"),
    "memory.swap.max": ("Memory Interface Files: the default is max", "0"),
    "memory.pressure": (
        "Memory Interface Files, and Documentation/accounting/psi.rst",
        "some avg10=2.50 avg60=1.00 avg300=0.20 total=1000\nfull avg10=1.00 avg60=0.50 avg300=0.10 total=500",
    ),
    "cpu.max": ("CPU Interface Files: $MAX $PERIOD in microseconds", "150000 100000"),
    "cpu.weight": ("CPU Interface Files: the default is 100", "100"),
    "cpu.stat": (
        "CPU Interface Files: three always, the rest when the controller is enabled",
        "usage_usec 60000000\nuser_usec 50000000\nsystem_usec 10000000\n"
        "nr_periods 1000\nnr_throttled 10\nthrottled_usec 5000",
    ),
}

#: The root cgroup has none of the files above that its section gives to non-root cgroups only.
ROOT = {
    "cgroup.controllers": FILES["cgroup.controllers"],
    "cpu.stat": ("CPU Interface Files: exists whether the controller is enabled or not", "usage_usec 9\nuser_usec 9"),
}


def documented(root: Path) -> Path:
    """Write the tree below ``root``, with a process in the container, on a host of 4 GiB; return the container."""
    host(root, available=3900 * MIB)
    member(root, f"0::/{CONTAINER}", mounts=[UNIFIED.format(root="/")])
    for name, (_, text) in ROOT.items():
        write(root, f"sys/fs/cgroup/{name}", text)
    for folder, others in ((POD, {"memory.max": "max", "cpu.max": "max 100000"}), (CONTAINER, {})):
        for name, (_, text) in FILES.items():
            write(root, f"sys/fs/cgroup/{folder}/{name}", others.get(name, text))
    return root / "sys/fs/cgroup" / CONTAINER
