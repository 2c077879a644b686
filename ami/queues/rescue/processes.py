"""Ends the processes of a dead worker on this machine: by pid and start time, never by pid alone."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

from ami.governor.probes import identity
from ami.queues.models import Worker


def can_reach(row: Worker) -> bool:
    """Whether the row's pids count here: the machine was not booted since, and the namespace is this process's."""
    here = identity.boot_id(), identity.pid_namespace()
    return all(here) and (row.boot_id, row.pid_namespace) == here


def reachable_pid(row: Worker) -> int | None:
    """Return the parent's pid where it counts here."""
    return row.pid if can_reach(row) else None


def has_ended(pid: int) -> bool:
    """Whether no process has this pid, at the price of one system call; it may be another's that has."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError) as error:
        return isinstance(error, ProcessLookupError)
    return False


def processes(row: Worker) -> list[tuple[int, int]]:
    """Return the worker's parent and children, each with its start time in clock ticks after boot."""
    return [(row.pid, row.pid_started), *((pid, started) for pid, started in row.children)]


def is_running(row: Worker) -> bool | None:
    """Whether the parent is there and no signal has stopped it; None where its pid does not count here."""
    if not can_reach(row):
        return None
    with suppress(ProcessLookupError):
        return identity.start_ticks(row.pid) == row.pid_started and identity.state(row.pid) not in ("T", "t", "Z", "X")
    return False


def is_gone(row: Worker) -> bool:
    """Whether the parent has surely ended, which can be seen in its own namespace alone."""
    if not can_reach(row):
        return False
    with suppress(ProcessLookupError):
        return identity.start_ticks(row.pid) != row.pid_started or identity.state(row.pid) in ("Z", "X")
    return True


def end(row: Worker) -> int:
    """SIGKILL the worker and its children, the parent first: it would start others. Return how many were there."""
    return _kill(processes(row)) if can_reach(row) else 0


def stopped(row: Worker) -> set[tuple[int, int]]:
    """Return those of its processes that a signal has stopped; nothing where its pids do not count here."""
    found = set()
    for pid, started in processes(row) if can_reach(row) else ():
        with suppress(ProcessLookupError):
            if identity.start_ticks(pid) == started and identity.state(pid) in ("T", "t"):
                found.add((pid, started))
    return found


def _kill(found: Iterable[tuple[int, int]]) -> int:
    count = 0
    for pid, started in found:
        with suppress(ProcessLookupError, PermissionError):
            if pid != os.getpid() and identity.start_ticks(pid) == started:
                os.kill(pid, signal.SIGKILL)
                count += 1
    return count
