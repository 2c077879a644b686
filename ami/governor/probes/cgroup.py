"""The cgroup of a process: what is used of which memory limit, on cgroup v1, v2 and hosts with both."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ami.governor.probes import host, keyed

# Each page is on exactly one list of the reclaim algorithm: anonymous, shared and tmpfs pages on the anon lists, page
# cache on the file lists (which are left out), and whatever is locked, of either sort, on the unevictable list alone.
# So the three add up without counting a locked page twice, as anon + shmem + unevictable would.
LISTS = ("inactive_anon", "active_anon", "unevictable")
# What the kernel holds for the cgroup and cannot drop. Older kernels have fewer of them; v1 has none in this file.
KERNEL = ("slab_unreclaimable", "kernel_stack", "pagetables", "percpu", "sock")
ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """Where a hierarchy with (v1) or possibly with (v2) a controller can be seen, as /proc/PID/mountinfo puts it."""

    version: int
    root: str
    point: str

    def below(self, path: str) -> str | None:
        """Return the cgroup ``path`` relative to the mount point, or None when it lies outside of what is mounted."""
        root = self.root.rstrip("/")
        if path != root and not path.startswith(f"{root}/"):
            return None
        return path[len(root) :].strip("/")


@dataclass(frozen=True)
class Place:
    """A process's cgroup folder, and the highest one above it that can be seen."""

    version: int
    folder: Path
    top: Path

    @property
    def levels(self) -> Iterator[Path]:
        """The folder and all above it, innermost first."""
        yield self.folder
        if self.folder != self.top:
            for parent in self.folder.parents:
                yield parent
                if parent == self.top:
                    return


class Cgroup:
    """The cgroup of process ``pid``, looked up at every call: processes move, and limits are resized.

    ``controller`` is what the cgroup must control: ``memory``, or ``cpu``, for which the methods about memory mean
    nothing.

    Sources: kernel Documentation/admin-guide/cgroup-v1/memory.rst (5.2, 6), cgroup-v2.rst ("Memory Interface Files"),
    proc_pid_mountinfo(5), cgroup_namespaces(7).
    """

    def __init__(self, root: Path = Path("/"), pid: int | str = "self", controller: str = "memory") -> None:
        self._root, self._controller = root, controller
        self._process = root / "proc" / str(pid)
        self._mounts: tuple[Mount, ...] | None = None

    @property
    def version(self) -> int | None:
        """1 or 2; None where no memory cgroup can be seen. Raises OSError and ValueError like ``memory``."""
        place = self._place()
        return place.version if place else None

    @property
    def path(self) -> Path | None:
        """The folder of the cgroup; None where none can be seen. Raises OSError and ValueError like ``memory``."""
        place = self._place()
        return place.folder if place else None

    def folders(self) -> Iterator[Path]:
        """Yield the folder of the cgroup and all above it that can be seen. Raises like ``memory``."""
        place = self._place()
        if place is not None:
            yield from place.levels

    def memory(self) -> tuple[int, int] | None:
        """Return (used, limit) in bytes at the fullest of the cgroup and all above it that have a limit, else None.

        That is the one with the smallest limit, unless a larger limit above is shared with others who have filled it.
        A limit is ``memory.max`` or ``memory.high``, whichever is less (v2), ``memory.limit_in_bytes`` and
        ``hierarchical_memory_limit`` (v1); one that is not below the host's memory is none. Used is what cannot be
        taken back without swapping: the anon and unevictable lists plus, on v2, unreclaimable kernel memory; never
        page cache.

        Raises:
            OSError: a file that must be there cannot be read.
            ValueError: a file has an unexpected content.
        """
        place = self._place()
        if place is None:
            return None
        _, total = host.memory(self._root)
        # 0 is a legal limit (memory.high, to push everything out): over it by any use, and no divisor.
        levels = [(_used(place.version, folder), limit or 1) for folder, limit in _limits(place) if limit < total]
        return max(levels, key=lambda level: (level[0] / level[1], -level[1]), default=None)

    def limit(self) -> int | None:
        """Return the smallest limit of the cgroup and all above it in bytes; None without one.

        Raises OSError and ValueError like ``memory``.
        """
        place = self._place()
        return min((limit for _, limit in _limits(place)), default=None) if place else None

    def kernel_kills(self) -> int | None:
        """Return how many processes the kernel has killed here for want of memory; None where nothing is limited.

        Sources: as above, ``oom_kill`` of ``memory.events`` (v2) and of ``memory.oom_control`` (v1).

        Raises:
            OSError, ValueError: like ``memory``.
        """
        place = self._place()
        if place is None or self.memory() is None:
            return None
        name = "memory.oom_control" if place.version == 1 else "memory.events"
        return keyed.pick(place.folder / name, "oom_kill")[0]

    def _place(self) -> Place | None:
        belongs = self._membership()
        if belongs is None:
            return None
        version, path = belongs
        if self._mounts is None:
            lines = (self._process / "mountinfo").read_text().splitlines()
            self._mounts = tuple(mount for line in lines if (mount := _mount(line, self._controller)))
        mounts = [mount for mount in self._mounts if mount.version == version]
        # The mount that shows most of what is above comes first.
        for mount in sorted(mounts, key=lambda mount: len(mount.root.rstrip("/"))):
            top, below = self._folder(mount), mount.below(path)
            if below is not None and ".." not in below.split("/") and (top / below).is_dir():
                return Place(version, top / below, top)
        # A container that keeps the host's names shows a path that is not mounted: what is mounted is the container's.
        tops = [top for mount in reversed(mounts) if (top := self._folder(mount)).is_dir()]
        return Place(version, tops[0], tops[0]) if tops else None

    def _folder(self, mount: Mount) -> Path:
        return self._root / mount.point.lstrip("/")

    def _membership(self) -> tuple[int, str] | None:
        """Return the version and path of the hierarchy that has the controller."""
        path = self._process / "cgroup"
        if not path.exists() and self._process.is_dir():
            return None  # A kernel without cgroups.
        unified = None
        for line in path.read_text().splitlines():
            columns = line.split(":", 2)
            if len(columns) != 3:
                raise ValueError(f"{path} has the line {line!r}, which is not ID:CONTROLLERS:PATH")
            if self._controller in columns[1].split(","):
                return 1, columns[2]
            if not columns[1]:
                unified = columns[2]
        return None if unified is None else (2, unified)


def _mount(line: str, controller: str) -> Mount | None:
    left, _, right = line.partition(" - ")
    columns, (kind, _, options) = left.split(" "), (right.split(" ") + ["", "", ""])[:3]
    if kind == "cgroup" and controller in options.split(","):
        return Mount(1, _unescaped(columns[3]), _unescaped(columns[4]))
    if kind == "cgroup2":
        return Mount(2, _unescaped(columns[3]), _unescaped(columns[4]))
    return None


def _unescaped(text: str) -> str:
    return ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def _limits(place: Place) -> Iterator[tuple[Path, int]]:
    """Yield each level that has a limit, and the limit in bytes; on v1 "no limit" is a number above any memory."""
    return _limits_v1(place) if place.version == 1 else _limits_v2(place)


def _limits_v2(place: Place) -> Iterator[tuple[Path, int]]:
    for folder in place.levels:
        limits = [limit for name in ("memory.max", "memory.high") if (limit := _limit(folder / name)) is not None]
        if limits:
            yield folder, min(limits)


def _limits_v1(place: Place) -> Iterator[tuple[Path, int]]:
    effective = keyed.read(place.folder / "memory.stat").get("hierarchical_memory_limit", 0)
    smallest = None
    for folder in place.levels:
        limit = _limit(folder / "memory.limit_in_bytes")
        # A level that asks for less than what holds here does not count for those below it (use_hierarchy 0).
        if limit is not None and limit >= effective:
            smallest = limit if smallest is None else min(smallest, limit)
            yield folder, limit
    if effective and (smallest is None or effective < smallest):
        # Set above all that can be seen from here; the highest that can be seen is nearest to it.
        yield place.top, effective


def _limit(path: Path) -> int | None:
    """Return a limit in bytes; None for ``max`` and for a level that has no such file (the root; no memory control)."""
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    if text == "max":
        return None
    if not text.isdecimal():
        raise ValueError(f"{path} contains {text[:40]!r}, which is neither a number nor 'max'")
    return int(text)


def _used(version: int, folder: Path) -> int:
    path = folder / "memory.stat"
    if version == 1:  # Plain names are the cgroup's alone; total_ adds those below it, which the limit also covers.
        return sum(keyed.pick(path, *(f"total_{name}" for name in LISTS)))
    stat = keyed.read(path)
    missing = [name for name in LISTS if name not in stat]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}")
    return sum(stat[name] for name in LISTS) + sum(stat.get(name, 0) for name in KERNEL)
