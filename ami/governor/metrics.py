"""The four watched figures beside their thresholds, and how each is said to an operator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ami.governor.sample import Reading
from ami.governor.settings import GovernorSettings

if TYPE_CHECKING:
    from ami.governor.policy import Gate

LABELS = {"memory": "RAM", "swap": "swap", "gpu": "GPU", "pressure": "memory pressure"}


@dataclass(frozen=True)
class Figure:
    """One figure in percent (None: unknown); it holds from ``throttle`` on, until it is no more than ``resume``."""

    cause: str
    percent: float | None
    throttle: float
    resume: float

    @property
    def crossed(self) -> bool:
        """Whether this look begins a hold."""
        return self.percent is not None and self.percent >= self.throttle

    @property
    def over(self) -> bool:
        """Whether a hold that it began goes on."""
        return self.percent is not None and self.percent > self.resume


def figures(settings: GovernorSettings, reading: Reading) -> tuple[Figure, ...]:
    """Return the watched figures of one look, RAM first."""
    pressure, memory, swapped = reading.pressure_percent, reading.memory_percent, reading.swap_percent
    if memory is not None and memory < settings.memory_resume_threshold:
        # With memory to spare, stalls are somebody's files read again and again, and a full swap is what went cold
        # there long ago: holding would end neither.
        pressure = None if pressure is None else 0.0
        swapped = None if swapped is None else 0.0
    swap = settings.swap_throttle_threshold
    return (
        Figure("memory", memory, settings.memory_throttle_threshold, settings.memory_resume_threshold),
        # Swap seldom empties by itself and has no resume threshold: it holds exactly while it is at its only one.
        Figure("swap", swapped, swap, math.nextafter(swap, 0)),
        Figure("gpu", reading.gpu_percent, settings.gpu_throttle_threshold, settings.gpu_resume_threshold),
        Figure("pressure", pressure, settings.pressure_throttle_threshold, settings.pressure_resume_threshold),
    )


def shown(cause: str, reading: Reading) -> str:
    """Return ``RAM at 91.2%`` or ``RAM unknown``."""
    percent: float | None = getattr(reading, f"{cause}_percent")
    return f"{LABELS[cause]} unknown" if percent is None else f"{LABELS[cause]} at {percent:.1f}%"


def reason(figure: Figure, reading: Reading) -> str:
    """Return why a figure holds: ``RAM at 91.2% (throttle at 90%, container)``."""
    below = figure.percent is not None and not figure.crossed
    edge = f"resume at {figure.resume:g}%" if below else f"throttle at {figure.throttle:g}%"
    scope = f", {reading.scope}" if figure.cause == "memory" else ""
    return f"{shown(figure.cause, reading)} ({edge}{scope})"


def shown_all(settings: GovernorSettings, gate: Gate, reading: Reading) -> dict[str, Any]:
    """Return state, reasons, readings (percent) and thresholds (throttle, resume), as JSON takes them."""
    watched = figures(settings, reading)
    percents = {figure.cause: getattr(reading, f"{figure.cause}_percent") for figure in watched}
    percents["cpu"] = reading.cpu_percent
    return {
        "mode": settings.memory_governor,
        "state": "held" if gate.held else "consuming",
        "reasons": list(gate.reasons),
        "causes": sorted(gate.causes),
        "scope": reading.scope,
        "memory_used_bytes": reading.memory_used_bytes,
        "memory_limit_bytes": reading.memory_limit_bytes,
        "percent": {name: None if value is None else round(value, 1) for name, value in percents.items()},
        "thresholds": {figure.cause: [figure.throttle, round(figure.resume, 6)] for figure in watched},
        "faults": list(reading.faults),
    }
