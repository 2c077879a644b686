"""Which process a pid is: its start time, its state, and the machine and namespace in which the pid counts."""

import os
from functools import cache
from pathlib import Path

ROOT = Path("/")
#: proc_pid_stat(5): the fields after the command's name begin with the third, the state.
_STATE, _START = 0, 19


def start_ticks(pid: int, root: Path = ROOT) -> int:
    """Return when the process started, in clock ticks after the machine's boot; with the pid it names one process.

    Raises:
        ProcessLookupError: no such process.
    """
    return int(_stat(pid, root)[_START])


def state(pid: int, root: Path = ROOT) -> str:
    """Return the process's state: ``T`` stopped by a signal, ``Z`` ended and not waited for, and others.

    Raises:
        ProcessLookupError: no such process.
    """
    return _stat(pid, root)[_STATE]


@cache
def boot_id(root: Path = ROOT) -> str:
    """Return what differs between two boots of a machine; empty where that is unknown."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@cache
def pid_namespace(root: Path = ROOT) -> str:
    """Return the namespace in which this process's pids count, as ``pid:[4026531836]``; empty where unknown."""
    try:
        return os.readlink(root / "proc/self/ns/pid")
    except OSError:
        return ""


def _stat(pid: int, root: Path) -> list[str]:
    try:
        text = (root / "proc" / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"no process {pid}") from None
    # The name is in parentheses, and may hold some.
    return text.rpartition(")")[2].split()
