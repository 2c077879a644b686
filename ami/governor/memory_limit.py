"""A memory limit that the kernel enforces inside each child: no check from outside catches a gigabyte in a second."""

import errno
import os
import resource
from contextlib import suppress
from typing import NamedTuple

from ami.governor.probes import process
from ami.governor.probes.cgroup import Cgroup

#: With less than this to add, no task has room: the limit is wrong, not the task.
LEAST_KIB = 32 * 1024

#: What :func:`impose` allowed this process, in KiB; 0 without a limit.
allowed_kib = 0

#: At so many KiB the parent ends this process; 0 where it does not.
hard_kib = 0

#: What this process could add when :func:`impose` was called.
_fresh_kib = 0


class Room(NamedTuple):
    """Memory in KiB that this process may still take, and that it might have taken when it was fresh."""

    now_kib: int
    fresh_kib: int


def room() -> Room | None:
    """Return the least that its limits, the parent's and the container's leave this process; None without any limit."""
    pid, found = os.getpid(), []
    ceiling, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if ceiling != resource.RLIM_INFINITY:
        found.append(Room(ceiling // 1024 - process.data_kib(pid), _fresh_kib or ceiling // 1024))
    if limit := allowed_kib or hard_kib:
        found.append(Room(limit - process.pss_kib(pid), _fresh_kib or limit))
    with suppress(OSError, ValueError):  # Where it cannot be read, the governor reports it.
        if container := Cgroup().memory():
            used, size = container
            found.append(Room((size - used) // 1024, size // 1024))
    return Room(*map(min, zip(*found, strict=True))) if found else None


def impose(limit_kib: int) -> int:
    """Limit this process to about ``limit_kib`` of memory of its own; return the limit on its address space in KiB.

    ``RLIMIT_DATA`` bounds private writable memory since Linux 4.7 (getrlimit(2)). It counts mapped memory, of which a
    forked child has more than it uses, so the limit is what is mapped now plus what may be added. An allocation beyond
    it fails with ``MemoryError`` in the task. The process's hard limit is left alone.

    Raises:
        ValueError: the process is nearly as large already, so that nothing could run under this limit.
    """
    global allowed_kib, _fresh_kib
    mapped_kib = process.data_kib(os.getpid())
    free_kib = limit_kib - process.pss_kib(os.getpid())
    if free_kib < LEAST_KIB:
        raise ValueError(
            f"the limit of {limit_kib} KiB leaves a fresh process {free_kib} KiB; raise MAX_MEMORY_PER_CHILD_KIB of "
            "its queue"
        )
    ceiling_kib = mapped_kib + free_kib
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        ceiling_kib = min(ceiling_kib, hard // 1024)
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling_kib * 1024, hard))
    allowed_kib, _fresh_kib = limit_kib, free_kib
    return ceiling_kib


def is_reached(error: BaseException) -> bool:
    """Whether a task's error means that the kernel refused memory, in a process that has a limit."""
    if not allowed_kib:
        return False
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "start new thread" in str(error))
