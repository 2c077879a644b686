"""One sample of everything the governor watches; a value that no probe could read is None."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """Memory, swap, pressure, CPU and GPU at one moment.

    Percentages are 0 to 100. ``memory_limit_bytes`` is the smallest limit of the container and its parents, or the
    host's memory without one; ``memory_used_bytes`` is what the kernel cannot reclaim without killing a process (never
    page cache). ``scope`` and ``cpu_scope`` are ``container`` or ``host``. ``cpu_percent`` is a mean over 15 s.
    ``other_memory`` has used and limit of the scope that is less full in percent: it may have less room in bytes.
    ``faults`` has one sentence per failed probe; the values of a failed probe are None, and None changes nothing.
    """

    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    scope: str = "host"
    other_memory: tuple[int, int] | None = None
    swap_percent: float | None = None
    pressure_percent: float | None = None
    cpu_percent: float | None = None
    cpu_scope: str = "host"
    gpu_percent: float | None = None
    faults: tuple[str, ...] = field(default=())

    @property
    def memory_percent(self) -> float | None:
        """Used memory in percent of the limit; None when either is unknown."""
        if self.memory_used_bytes is None or not self.memory_limit_bytes:
            return None
        return 100 * self.memory_used_bytes / self.memory_limit_bytes

    def room_bytes(self, percent: float) -> float | None:
        """Return what is left below this percentage, in the scope that has least; None where memory is unknown."""
        if self.memory_used_bytes is None or not self.memory_limit_bytes:
            return None
        scopes = [
            (self.memory_used_bytes, self.memory_limit_bytes),
            *([self.other_memory] if self.other_memory else []),
        ]
        return min(percent * limit / 100 - used for used, limit in scopes)
