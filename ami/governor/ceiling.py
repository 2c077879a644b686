"""A ceiling that the kernel keeps inside each child: no look from outside catches a gigabyte in a second."""

import os
import resource

from ami.governor.probes import process

#: What :func:`impose` allowed this process, in KiB; 0 where there is no ceiling.
allowed_kib = 0


def impose(limit_kib: int) -> int:
    """Let this process grow to about ``limit_kib`` of memory of its own and no further; return the ceiling in KiB.

    ``RLIMIT_DATA`` bounds private writable memory since Linux 4.7 (getrlimit(2)). It counts what is mapped, of which a
    forked child has more than it uses, so the ceiling is what is mapped now and what may still be added. An allocation
    beyond it fails with ``MemoryError`` in the task that asks for it. The hard limit is left alone.
    """
    global allowed_kib
    mapped_kib = process.data_kib(os.getpid())
    free_kib = max(0, limit_kib - process.pss_kib(os.getpid()))
    ceiling_kib = mapped_kib + free_kib
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        ceiling_kib = min(ceiling_kib, hard // 1024)
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling_kib * 1024, hard))
    allowed_kib = limit_kib
    return ceiling_kib
