"""A memory limit that the kernel enforces inside each child: no check from outside catches a gigabyte in a second."""

import errno
import os
import resource

from ami.governor.probes import process

#: With less than this to add, no task has room: the limit is wrong, not the task.
LEAST_KIB = 32 * 1024

#: What :func:`impose` allowed this process, in KiB; 0 without a limit.
allowed_kib = 0


def impose(limit_kib: int) -> int:
    """Limit this process to about ``limit_kib`` of memory of its own; return the limit on its address space in KiB.

    ``RLIMIT_DATA`` bounds private writable memory since Linux 4.7 (getrlimit(2)). It counts mapped memory, of which a
    forked child has more than it uses, so the limit is what is mapped now plus what may be added. An allocation beyond
    it fails with ``MemoryError`` in the task. The process's hard limit is left alone.

    Raises:
        ValueError: the process is nearly as large already, so that nothing could run under this limit.
    """
    global allowed_kib
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
    allowed_kib = limit_kib
    return ceiling_kib


def is_reached(error: BaseException) -> bool:
    """Whether a task's error means that the kernel refused memory, in a process that has a limit."""
    if not allowed_kib:
        return False
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "start new thread" in str(error))
