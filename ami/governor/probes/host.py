"""The host's memory and swap, from /proc/meminfo (kernel: Documentation/filesystems/proc.rst)."""

from pathlib import Path

from ami.governor.probes import keyed

KIB = 1024


def memory(root: Path = Path("/")) -> tuple[int, int]:
    """Return (used, total) in bytes, where used is what is not in MemAvailable.

    Raises:
        OSError: the file cannot be read.
        ValueError: it lacks MemTotal or MemAvailable (Linux before 3.14).
    """
    total, available = keyed.pick(root / "proc/meminfo", "MemTotal", "MemAvailable")
    return (total - available) * KIB, total * KIB


def swap_percent(root: Path = Path("/")) -> float | None:
    """Return how much of the swap space is taken, 0 to 100; None where there is no swap.

    Raises:
        OSError: the file cannot be read.
        ValueError: it lacks SwapTotal or SwapFree.
    """
    total, free = keyed.pick(root / "proc/meminfo", "SwapTotal", "SwapFree")
    return 100 * (total - free) / total if total else None
