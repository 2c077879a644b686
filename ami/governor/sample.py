"""One look at everything the governor watches; what a probe could not tell is None."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reading:
    """Memory, swap, pressure, CPU and GPU at one moment.

    Percentages are 0 to 100. ``memory_limit_bytes`` is the smallest limit over the container and all above it, or the
    host's memory where there is none; ``memory_used_bytes`` is what cannot be taken back from it without killing
    anybody (never page cache). ``scope`` says whose memory it is: ``container`` or ``host``. ``faults`` are sentences
    about probes that failed at this look; a failed probe's figures are None, and None changes nothing.
    """

    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    scope: str = "host"
    swap_percent: float | None = None
    pressure_percent: float | None = None
    cpu_percent: float | None = None
    gpu_percent: float | None = None
    faults: tuple[str, ...] = field(default=())

    @property
    def memory_percent(self) -> float | None:
        """Used memory in percent of the limit, or None when either is unknown."""
        if self.memory_used_bytes is None or not self.memory_limit_bytes:
            return None
        return 100 * self.memory_used_bytes / self.memory_limit_bytes
