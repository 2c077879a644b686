"""The memory limit inside a child, in separate processes: beyond it an allocation is a MemoryError."""

import errno
import json
import os
import resource
import subprocess
import sys
from typing import Any

import pytest

from ami.governor import memory_limit
from ami.governor.probes import process

MIB = 1024
#: What the process under test may add to what it has.
ROOM_MIB = 128

PROGRAM = """
import json, os, resource
from ami.governor import memory_limit
from ami.governor.probes import process

def takes(mib):
    try:
        taken = bytearray(mib * 1024 ** 2)
        taken[::4096] = b"x" * len(range(0, len(taken), 4096))
        return "worked"
    except MemoryError:
        return "MemoryError"

report = {}
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
LIMIT = process.pss_kib(os.getpid()) + ROOM * 1024
report["before"] = takes(4 * ROOM)
report["ceiling_kib"] = memory_limit.impose(LIMIT)
report["room"] = memory_limit.room()
report["limits"] = resource.getrlimit(resource.RLIMIT_DATA)
report["hard_kept"] = report["limits"][1] == hard
report["below"] = takes(ROOM // 2)
report["beyond"] = takes(2 * ROOM)
report["after"] = takes(ROOM // 2)
report["allowed"] = memory_limit.allowed_kib == LIMIT
report["data_kib"] = process.data_kib(os.getpid())
print(json.dumps(report))
"""


def ran(first: str = "", room_mib: int = ROOM_MIB) -> dict[str, Any]:
    """Run the program in a process of its own, after ``first``; return its report."""
    program = f"ROOM = {room_mib}\n{first}\n{PROGRAM}"
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.processes
def test_an_allocation_beyond_the_limit_is_a_memory_error() -> None:
    report = ran()
    assert (report["before"], report["below"], report["beyond"], report["after"]) == (
        "worked",
        "worked",
        "MemoryError",
        "worked",
    )


@pytest.mark.processes
def test_only_the_soft_limit_is_lowered() -> None:
    report = ran()
    assert report["room"][0] <= report["room"][1] <= ROOM_MIB * MIB
    assert report["hard_kept"]
    assert report["allowed"]
    assert report["limits"][0] == report["ceiling_kib"] * 1024
    # The interpreter itself frees and allocates a little meanwhile.
    assert abs(report["ceiling_kib"] - report["data_kib"] - ROOM_MIB * MIB) < 16 * MIB


@pytest.mark.processes
def test_a_hard_limit_below_it_holds() -> None:
    report = ran("import resource; resource.setrlimit(resource.RLIMIT_DATA, (2 ** 29, 2 ** 29))", room_mib=1024)
    assert report["limits"] == [2**29, 2**29]
    assert report["ceiling_kib"] == 2**19
    assert report["below"] == "MemoryError"


def test_a_limit_without_room_for_a_task_is_refused() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(ValueError, match="raise MAX_MEMORY_PER_CHILD_KIB of its queue"):
        memory_limit.impose(process.pss_kib(os.getpid()) + memory_limit.LEAST_KIB // 2)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert memory_limit.allowed_kib == 0


@pytest.mark.parametrize(
    ("error", "reached"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("can't start new thread"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (RuntimeError("something else"), False),
        (ValueError("can't start new thread"), False),
    ],
)
def test_errors_that_mean_the_limit_is_reached(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reached: bool
) -> None:
    assert not memory_limit.is_reached(error)
    monkeypatch.setattr(memory_limit, "allowed_kib", 4096)
    assert memory_limit.is_reached(error) is reached


def test_there_is_no_limit_by_default() -> None:
    assert memory_limit.allowed_kib == 0


def test_room_is_what_the_parents_limit_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "hard_kib", process.pss_kib(os.getpid()) + 300 * MIB)
    room = memory_limit.room()
    assert room is not None
    assert room.now_kib <= 320 * MIB
    assert room.now_kib < room.fresh_kib <= memory_limit.hard_kib
