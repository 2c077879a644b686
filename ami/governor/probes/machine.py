"""All probes at once: one sample, with one sentence for each probe that failed."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ami.governor.probes import host, pressure
from ami.governor.probes.cgroup import Cgroup
from ami.governor.probes.cpu import Cpu
from ami.governor.probes.gpu import Gpu
from ami.governor.probes.rocm import Rocm
from ami.governor.sample import Sample

T = TypeVar("T")


class Machine:
    """The container, the host and the GPUs of this process."""

    def __init__(
        self,
        root: Path = Path("/"),
        gpu: Gpu | None = None,
        clock: Callable[[], float] = time.monotonic,
        rocm: Rocm | None = None,
    ) -> None:
        self._root = root
        self.cgroup = Cgroup(root)
        self._cpu = Cpu(root, clock=clock)
        self._gpus = (gpu or Gpu(), rocm or Rocm())

    def read(self) -> Sample:
        """Return a sample of now; never raises. A failed probe is None and a sentence in ``faults``.

        Memory is the container's or the host's, whichever is fuller in percent. When either cannot be read, memory is
        unknown: one of them alone could release what the other holds.
        """
        faults: list[str] = []
        scope, used, limit, other = _ask("memory", self._memory, faults) or ("host", None, None, None)
        swap = _ask("swap", lambda: host.swap_percent(self._root), faults)
        stalled = _ask("pressure", lambda: pressure.some_avg10(self._root, self.cgroup), faults)
        cpu_scope, cpu_percent = _ask("CPU", self._cpu.percent, faults) or ("host", None)
        return Sample(
            memory_used_bytes=used,
            memory_limit_bytes=limit,
            scope=scope,
            other_memory=other,
            swap_percent=swap,
            pressure_percent=stalled,
            cpu_percent=cpu_percent,
            cpu_scope=cpu_scope,
            gpu_percent=_ask("GPU", self._gpu_percent, faults),
            faults=tuple(faults),
        )

    def _gpu_percent(self) -> float | None:
        """Return the fuller of NVIDIA's and AMD's GPUs; a failure of either makes both unknown."""
        percents = [gpu.percent() for gpu in self._gpus]
        return max((percent for percent in percents if percent is not None), default=None)

    def _memory(self) -> tuple[str, int, int, tuple[int, int] | None]:
        container, machine = self.cgroup.memory(), host.memory(self._root)
        if container is None or container[0] / container[1] < machine[0] / machine[1]:
            return "host", *machine, container
        return "container", *container, machine


def _ask(name: str, probe: Callable[[], T], faults: list[str]) -> T | None:
    try:
        return probe()
    except Exception as error:  # No probe may stop the worker.
        faults.append(f"The {name} probe failed: {str(error) or type(error).__name__}.")
        return None
