"""The commands of a laptop: one worker per queue, and beat, under one parent."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ami.topology import app, command
from ami.topology.errors import TopologyError
from ami.topology.process_group import Command
from ami.topology.topology import load
from ami.topology.workload import PARENT_MEMORY_KIB, Workload

#: Beat has nothing to finish but the tick that it publishes.
BEAT_GRACE_SECONDS = 10.0


def commands(
    environ: Mapping[str, str], folder: Path, concurrency: int | None, only: Sequence[str] = (), *, has_beat: bool
) -> list[Command]:
    """Return the commands of the workers of ``only``, or of every queue; their pulses are in ``folder``.

    Raises:
        TopologyError: a queue is unknown, or the machine's memory does not hold so many children.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    environ = {**environ, **command.of_one_machine(load(environ), environ, concurrency, cores)}
    topology = load(environ)
    rows = [topology.workload(queue) for queue in dict.fromkeys(only or topology.queues)]
    if concurrency:
        _refuse_beyond_memory(rows, concurrency)
    found = []
    for row in rows:
        pulse = folder / f"{row.key.lower()}.pulse"
        own = {**command.environment(environ, "worker"), app.declared("antenna_pulse_file").name: str(pulse)}
        argv = command.worker(topology, row.queue)
        found.append(Command(row.key.lower(), argv, own, row.stop_grace_period_seconds, pulse))
    if has_beat:
        found.append(Command("beat", command.beat(), command.environment(environ, "beat"), BEAT_GRACE_SECONDS))
    return found


def _refuse_beyond_memory(rows: Sequence[Workload], concurrency: int) -> None:
    """Refuse a concurrency at which the children of all workers together need more memory than the machine has."""
    machine_kib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    held = (machine_kib - len(rows) * PARENT_MEMORY_KIB) // sum(row.child_limit_kib for row in rows)
    if concurrency > max(1, held):
        raise TopologyError(
            f"--concurrency {concurrency} is {concurrency * len(rows)} children in {len(rows)} workers, and this "
            f"machine's memory holds {max(1, held)} in each; name at most that, or fewer queues with --only."
        )
