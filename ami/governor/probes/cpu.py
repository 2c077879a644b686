"""How busy the machine's processors are, from /proc/stat (kernel: Documentation/filesystems/proc.rst)."""

from pathlib import Path


class Cpu:
    """Processor time since the last call."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._path = root / "proc/stat"
        self._before: tuple[int, int] | None = None

    def percent(self) -> float | None:
        """Return the busy share of all processors since the previous call, 0 to 100; None at the first call.

        Waiting for a disk is idle; time stolen by the hypervisor is busy: this machine cannot use it.

        Raises:
            OSError: the file cannot be read.
            ValueError: its first line is not the sum over the processors.
        """
        before, self._before = self._before, None
        self._before = idle, total = self._ticks()
        if before is None or total <= before[1]:
            return None
        # iowait may run backwards, which would show more than 100 or less than 0.
        return min(100.0, max(0.0, 100 - 100 * (idle - before[0]) / (total - before[1])))

    def _ticks(self) -> tuple[int, int]:
        with self._path.open() as file:
            line = file.readline()
        name, *columns = line.split()[:9] or [""]
        if name != "cpu" or len(columns) < 5:
            raise ValueError(f"{self._path} begins with {line[:80]!r}, not with the line of all processors")
        # user nice system idle iowait irq softirq steal; the guests' two columns after them are in user and nice.
        ticks = [int(column) for column in columns]
        return ticks[3] + ticks[4], sum(ticks)
