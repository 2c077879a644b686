"""The ceiling inside a child, in processes of its own: below it all works, beyond it is a MemoryError."""

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

told = {}
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
LIMIT = process.pss_kib(os.getpid()) + ROOM * 1024
told["before"] = takes(4 * ROOM)
told["ceiling_kib"] = memory_limit.impose(LIMIT)
told["limits"] = resource.getrlimit(resource.RLIMIT_DATA)
told["hard_kept"] = told["limits"][1] == hard
told["below"] = takes(ROOM // 2)
told["beyond"] = takes(2 * ROOM)
told["after"] = takes(ROOM // 2)
told["allowed"] = memory_limit.allowed_kib == LIMIT
told["data_kib"] = process.data_kib(os.getpid())
print(json.dumps(told))
"""


def ran(first: str = "", room_mib: int = ROOM_MIB) -> dict[str, Any]:
    """Run the program in a process of its own, after ``first``; return what it told."""
    program = f"ROOM = {room_mib}\n{first}\n{PROGRAM}"
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.processes
def test_below_it_all_works_and_beyond_it_is_a_memory_error_that_harms_nothing_else() -> None:
    told = ran()
    assert (told["before"], told["below"], told["beyond"], told["after"]) == (
        "worked",
        "worked",
        "MemoryError",
        "worked",
    )


@pytest.mark.processes
def test_only_the_soft_limit_is_lowered_and_the_process_knows_what_it_was_given() -> None:
    told = ran()
    assert told["hard_kept"]
    assert told["allowed"]
    assert told["limits"][0] == told["ceiling_kib"] * 1024
    # The interpreter itself gives back and takes a little meanwhile.
    assert abs(told["ceiling_kib"] - told["data_kib"] - ROOM_MIB * MIB) < 16 * MIB


@pytest.mark.processes
def test_a_hard_limit_below_it_holds() -> None:
    told = ran("import resource; resource.setrlimit(resource.RLIMIT_DATA, (2 ** 29, 2 ** 29))", room_mib=1024)
    assert told["limits"] == [2**29, 2**29]
    assert told["ceiling_kib"] == 2**19
    assert told["below"] == "MemoryError"


def test_a_ceiling_that_would_leave_room_for_no_task_is_refused() -> None:
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
def test_what_says_that_the_ceiling_is_reached_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reached: bool
) -> None:
    assert not memory_limit.is_reached(error)
    monkeypatch.setattr(memory_limit, "allowed_kib", 4096)
    assert memory_limit.is_reached(error) is reached


def test_where_nobody_imposed_one_there_is_none() -> None:
    assert memory_limit.allowed_kib == 0
