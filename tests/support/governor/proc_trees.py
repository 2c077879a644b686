"""Folders that look like the parts of /proc and /sys/fs/cgroup that the probes read."""

from pathlib import Path

MIB = 2**20
NO_LIMIT = 9223372036854771712
UNIFIED = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
MEMORY_V1 = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory"
CPU_V1 = "33 31 0:30 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct"
UNIFIED_OF_HYBRID = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"


def write(root: Path, name: str, text: object) -> Path:
    """Write one file below ``root``, its folders included."""
    path = root / name.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
    return path


def host(root: Path, total=4096 * MIB, available=3072 * MIB, swap=(0, 0)) -> Path:
    """A host with so much memory, free memory and (total, free) swap, in bytes."""
    kib = [number // 1024 for number in (total, available, *swap)]
    write(
        root,
        "proc/meminfo",
        "MemTotal:       {} kB\nMemFree:   8 kB\nMemAvailable:   {} kB\nHugePages_Total:       0\n"
        "SwapTotal:  {} kB\nSwapFree:  {} kB".format(*kib),
    )
    write(root, "proc/stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 100 0 100 700 100 0 0 0 0 0")
    return root


def member(root: Path, *lines: str, mounts=(), pid="self") -> None:
    """Say which cgroups a process is in, and where they are mounted."""
    write(root, f"proc/{pid}/cgroup", "\n".join(lines))
    other = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw"
    write(root, f"proc/{pid}/mountinfo", "\n".join([other, *mounts]))


def v2(root: Path, folder: str, maximum="max", high="max", anon=100 * MIB, **stat: int) -> Path:
    """A v2 cgroup with these limits, so much anonymous memory, and a lot of page cache."""
    names = {"anon": anon, "file": 900 * MIB, "shmem": 0, "inactive_anon": anon, "active_anon": 0} | {
        "inactive_file": 500 * MIB,
        "active_file": 400 * MIB,
        "unevictable": 0,
        "slab_reclaimable": 300 * MIB,
        **stat,
    }
    at = f"sys/fs/cgroup/{folder}"
    write(root, f"{at}/memory.max", maximum)
    write(root, f"{at}/memory.high", high)
    return write(root, f"{at}/memory.stat", _lines(names)).parent


def v1(root: Path, folder: str, limit=NO_LIMIT, hierarchical=NO_LIMIT, anon=100 * MIB, **stat: int) -> Path:
    """A v1 cgroup with this limit, so much anonymous memory with those below it, and a lot of page cache."""
    names = {"cache": 900 * MIB, "rss": 1, "inactive_anon": 1, "active_anon": 1, "unevictable": 1} | {
        "hierarchical_memory_limit": hierarchical,
        "total_cache": 900 * MIB,
        "total_rss": anon,
        "total_inactive_anon": anon,
        "total_active_anon": 0,
        "total_inactive_file": 900 * MIB,
        "total_unevictable": 0,
        **stat,
    }
    at = f"sys/fs/cgroup/memory/{folder}"
    write(root, f"{at}/memory.limit_in_bytes", limit)
    return write(root, f"{at}/memory.stat", _lines(names)).parent


def _lines(numbers: dict[str, int]) -> str:
    return "\n".join(f"{name} {number}" for name, number in numbers.items())
