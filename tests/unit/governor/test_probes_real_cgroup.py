"""A memory cgroup made for the test, and a child process in it that takes memory of every kind."""

import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ami.governor.probes.cgroup import Cgroup
from tests.support.place import until

MIB = 2**20
LIMIT = 256 * MIB
# Python itself, and what it takes to read a file.
SLACK = 24 * MIB
CHILD = """
import ctypes, mmap, os, sys
folder, what, path = sys.argv[1:]
open(f"{folder}/cgroup.procs", "w").write(str(os.getpid()))
size = 64 * 2**20
if what in ("anonymous", "locked"):
    kept = bytearray(b"x" * 2**20) * 64
if what == "locked":
    address = ctypes.addressof(ctypes.c_char.from_buffer(kept))
    assert ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)) == 0
if what == "shared":
    kept = mmap.mmap(-1, size)
    for offset in range(0, size, 4096):
        kept[offset] = 1
with open(path, "wb") as file:
    for _ in range(64):
        file.write(b"y" * 2**20)
    file.flush()
    os.fsync(file.fileno())
with open(path, "rb") as file:
    while file.read(2**20):
        pass
print("ready", flush=True)
sys.stdin.read()
"""


def controller() -> tuple[int, Path] | str:
    """Where a memory cgroup can be made here, or why none can."""
    if os.geteuid() != 0:
        return "only root can make a cgroup"
    legacy, unified = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    if (legacy / "memory.limit_in_bytes").exists() and os.access(legacy, os.W_OK):
        return 1, legacy
    switches = unified / "cgroup.subtree_control"
    if switches.exists() and "memory" in switches.read_text().split() and os.access(unified, os.W_OK):
        return 2, unified
    return "no memory controller that can be written to"


FOUND = controller()
pytestmark = pytest.mark.skipif(isinstance(FOUND, str), reason=f"no real memory cgroup: {FOUND}")


@pytest.fixture
def folder():
    version, parent = FOUND
    folder = parent / f"antenna-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as refused:
        pytest.skip(f"no real memory cgroup: {refused}")
    resize(folder, LIMIT)
    yield folder

    def removed():
        try:
            folder.rmdir()
        except OSError:  # Busy for as long as a process that was killed is in it.
            return False
        return True

    until(removed, 30, f"{folder} is removed")


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder on a disk: the run's temporary files may be in memory, where a file is not page cache."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # noqa: S108 - a folder of this test's own
        yield Path(folder)


@pytest.fixture
def child(folder, on_disk):
    """Start a child in the cgroup that takes 64 MiB of one kind, and reads and writes a file of 64 MiB."""
    started = []

    def start(what):
        argv = [sys.executable, "-c", CHILD, str(folder), what, str(on_disk / "file")]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def resize(folder: Path, limit: int) -> None:
    name = "memory.limit_in_bytes" if FOUND[0] == 1 else "memory.max"
    (folder / name).write_text(str(limit))


def page_cache(folder: Path) -> int:
    """Bytes of page cache, that of the test's file at least."""
    names = ("total_inactive_file", "total_active_file") if FOUND[0] == 1 else ("inactive_file", "active_file")
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return sum(int(stat[name]) for name in names)


def settled(folder: Path, pid: int) -> tuple[int, int]:
    """The metrics once the kernel's own counters, which it adds up in batches, show the page cache."""
    until(lambda: page_cache(folder) > 56 * MIB, 10, f"64 MiB of page cache in {folder}")
    return Cgroup(pid=pid).memory()


@pytest.mark.processes
def test_anonymous_memory_counts_and_page_cache_does_not(folder, child):
    process = child("anonymous")

    used, limit = settled(folder, process.pid)

    assert limit == LIMIT
    assert 60 * MIB <= used <= 64 * MIB + SLACK


@pytest.mark.processes
def test_shared_memory_counts(folder, child):
    process = child("shared")

    used, _ = settled(folder, process.pid)

    assert 60 * MIB <= used <= 64 * MIB + SLACK


@pytest.mark.processes
def test_locked_memory_counts_once(folder, child):
    process = child("locked")

    used, _ = settled(folder, process.pid)

    assert 60 * MIB <= used <= 64 * MIB + SLACK


@pytest.mark.processes
def test_page_cache_alone_counts_for_nothing(folder, child):
    process = child("nothing")

    used, _ = settled(folder, process.pid)

    assert used <= SLACK


@pytest.mark.processes
def test_a_resize_of_a_running_container_is_seen(folder, child):
    cgroup = Cgroup(pid=child("anonymous").pid)
    before = cgroup.memory()
    resize(folder, 2 * LIMIT)

    assert (before[1], cgroup.memory()[1]) == (LIMIT, 2 * LIMIT)
    assert (cgroup.version, cgroup.path) == (FOUND[0], folder)


@pytest.mark.processes
def test_process_that_the_kernel_killed_is_counted_once(folder, child):
    process = child("anonymous")
    cgroup = Cgroup(pid=process.pid)
    assert cgroup.kernel_kills() == 0
    greedy = f"import os; open('{folder}/cgroup.procs', 'w').write(str(os.getpid())); bytearray(b'x') * {LIMIT}"

    done = subprocess.run([sys.executable, "-c", greedy], check=False)

    assert done.returncode == -9
    assert cgroup.kernel_kills() == 1
