"""A memory cgroup of a test's own, and a ballast that fills and empties it."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.place import until

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
MIB = 1024**2

BALLAST = """
import sys
held = []
print("ready", flush=True)
for line in sys.stdin:
    held = None
    size = int(line) * 1024**2
    held = bytearray(size)
    held[::4096] = b"x" * len(range(0, size, 4096))  # Touched, or the kernel gives nothing.
    print("holds", line.strip(), flush=True)
"""


@dataclass
class Group:
    """One memory cgroup, version 1 or 2."""

    path: Path
    version: int
    limit_bytes: int
    ballasts: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def enter(self) -> list[str]:
        """The beginning of an argument vector whose process, and all its children, live in this group."""
        return ["/bin/sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh"]

    @property
    def environment(self) -> dict[str, str]:
        """What makes a worker with ``tests.support.worker_tasks.governor`` enter this group before it has children.

        It need not be started anew for that, as with ``enter``: it may be forked.
        """
        return {"ANTENNA_TEST_CGROUP": str(self.path)}

    @property
    def anonymous_mib(self) -> int:
        """The memory of the processes here, without page cache."""
        stat = (self.path / "memory.stat").read_text().split()
        return int(stat[stat.index("total_rss" if self.version == 1 else "anon") + 1]) // MIB

    @property
    def kills(self) -> int:
        """How many processes the kernel has killed here for want of memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        counts = dict(line.split() for line in (self.path / name).read_text().splitlines())
        return int(counts["oom_kill"])

    @property
    def pids(self) -> list[int]:
        """Who lives here."""
        return [int(pid) for pid in (self.path / "cgroup.procs").read_text().split()]

    def ballast(self) -> "Ballast":
        """Start a process in this group that takes as much memory as it is told to."""
        popen = subprocess.Popen(
            [*self.enter, sys.executable, "-c", BALLAST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ballasts.append(popen)
        assert popen.stdout is not None
        assert popen.stdout.readline() == "ready\n"
        return Ballast(popen)

    def kill(self) -> None:
        """SIGKILL everybody at once, as the kernel does to a container whose memory is one group."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)

    def remove(self) -> None:
        """Kill who is left, and remove the group."""
        self.kill()
        for popen in self.ballasts:
            popen.communicate(timeout=10)
        until(lambda: not self.pids, 10, "the cgroup is empty")
        self.path.rmdir()


@dataclass(frozen=True)
class Ballast:
    """Memory to be had and given back on command."""

    popen: subprocess.Popen[str]

    def hold(self, mib: int) -> None:
        """Hold so many MiB; return when it does."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.write(f"{mib}\n")
        self.popen.stdin.flush()
        assert self.popen.stdout.readline() == f"holds {mib}\n"


@contextmanager
def new_group(limit_bytes: int) -> Iterator[Group]:
    """Make a memory cgroup with a limit; skip the test where that is not to be had."""
    version = 1 if (V1 / "memory.limit_in_bytes").exists() else 2
    parent = V1 if version == 1 else V2
    path = parent / f"antenna-test-{uuid.uuid4().hex[:8]}"
    try:
        if version == 2:
            (V2 / "cgroup.subtree_control").write_text("+memory")
        path.mkdir()
        (path / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(limit_bytes))
    except OSError as error:
        pytest.skip(f"needs root and a memory cgroup controller: {error}")
    group = Group(path, version, limit_bytes)
    try:
        yield group
    finally:
        group.remove()
