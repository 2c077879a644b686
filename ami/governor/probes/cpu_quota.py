"""The processor time that a container may use, and has used, on cgroup v1 and v2."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ami.governor.probes import keyed
from ami.governor.probes.cgroup import Cgroup


@dataclass(frozen=True)
class Use:
    """Seconds of processor time that a cgroup has used since it was made, and the cores that its quota allows."""

    seconds: float
    cores: float


def uses(cgroup: Cgroup) -> Mapping[Path, Use]:
    """Return the use of each cgroup with a quota, the process's own and those above it; empty without any.

    ``cgroup`` is the one of the CPU controller. Sources: kernel Documentation/admin-guide/cgroup-v2.rst ("CPU
    Interface Files"), Documentation/scheduler/sched-bwc.rst and admin-guide/cgroup-v1/cpuacct.rst.

    Raises:
        OSError: a file that must be there cannot be read.
        ValueError: a file has an unexpected content.
    """
    found = {}
    for folder in cgroup.folders():
        cores = _cores_v1(folder) if cgroup.version == 1 else _cores_v2(folder)
        seconds = _seconds(cgroup.version, folder) if cores else None
        if cores and seconds is not None:
            found[folder] = Use(seconds, cores)
    return found


def _cores_v2(folder: Path) -> float | None:
    """Return the cores of ``cpu.max``, ``$MAX $PERIOD`` in microseconds; None for ``max`` and at the root."""
    path = folder / "cpu.max"
    if not path.exists():
        return None
    words = path.read_text().split()
    if len(words) != 2 or not words[1].isdecimal() or not (words[0] == "max" or words[0].isdecimal()):
        raise ValueError(f"{path} contains {' '.join(words)[:40]!r}, which is not a quota and a period")
    return None if words[0] == "max" else int(words[0]) / int(words[1])


def _cores_v1(folder: Path) -> float | None:
    """Return the cores of ``cpu.cfs_quota_us``, -1 for none; None where it has no such file."""
    quota, period = folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
    if not quota.exists() or not period.exists():
        return None
    number = int(quota.read_text())
    return number / int(period.read_text()) if number > 0 else None


def _seconds(version: int | None, folder: Path) -> float | None:
    if version == 2:
        return keyed.pick(folder / "cpu.stat", "usage_usec")[0] / 1e6
    path = folder / "cpuacct.usage"  # Elsewhere if the two controllers are mounted apart.
    return int(path.read_text()) / 1e9 if path.exists() else None
