"""How many processes of this worker's container the kernel killed for want of memory since the worker started."""

from pathlib import Path

from ami.governor.probes.cgroup import Cgroup


class KernelKills:
    """The counter of the memory cgroup, which a container that survives keeps; ``root`` is another root for tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._cgroup = Cgroup(root)
        self._before = self._read()

    def count(self) -> int | None:
        """Return the kills since the start; None where nothing is limited or the counter cannot be read."""
        now = self._read()
        return None if now is None or self._before is None else max(0, now - self._before)

    def _read(self) -> int | None:
        try:
            return self._cgroup.kernel_kills()
        except (OSError, ValueError):  # It is a hint; the governor's own probe reports a cgroup that cannot be read.
            return None
