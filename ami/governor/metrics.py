"""The watched metrics beside their thresholds, and their text for an operator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ami.governor.sample import Sample
from ami.governor.settings import GovernorSettings

if TYPE_CHECKING:
    from ami.governor.policy import Gate

LABELS = {"memory": "RAM", "swap": "swap", "gpu": "GPU", "pressure": "memory pressure", "cpu": "CPU"}


@dataclass(frozen=True)
class Metric:
    """One metric in percent (None: unknown); it holds from ``throttle`` on, until it is at most ``resume``."""

    cause: str
    percent: float | None
    throttle: float
    resume: float

    @property
    def crossed(self) -> bool:
        """Whether a hold begins."""
        return self.percent is not None and self.percent >= self.throttle

    @property
    def over(self) -> bool:
        """Whether a hold that this metric began goes on."""
        return self.percent is not None and self.percent > self.resume


def metrics(settings: GovernorSettings, sample: Sample) -> tuple[Metric, ...]:
    """Return the watched metrics of one sample, RAM first."""
    pressure, memory, swapped = sample.pressure_percent, sample.memory_percent, sample.swap_percent
    if memory is not None and memory < settings.memory_resume_threshold:
        # With memory to spare, stalls are files that a process reads repeatedly, and a full swap holds pages that went
        # cold long ago: a hold would end neither.
        pressure = None if pressure is None else 0.0
        swapped = None if swapped is None else 0.0
    swap, cpu = settings.swap_throttle_threshold, settings.cpu_throttle_threshold
    processors = () if cpu is None else (Metric("cpu", sample.cpu_percent, cpu, settings.cpu_resumes_at),)
    return (
        Metric("memory", memory, settings.memory_throttle_threshold, settings.memory_resume_threshold),
        # Swap seldom empties by itself and has no resume threshold: it holds while it is at its only threshold.
        Metric("swap", swapped, swap, math.nextafter(swap, 0)),
        Metric("gpu", sample.gpu_percent, settings.gpu_throttle_threshold, settings.gpu_resume_threshold),
        Metric("pressure", pressure, settings.pressure_throttle_threshold, settings.pressure_resume_threshold),
        *processors,
    )


def format_metric(cause: str, sample: Sample) -> str:
    """Return ``RAM at 91.2%`` or ``RAM unknown``."""
    percent: float | None = getattr(sample, f"{cause}_percent")
    return f"{LABELS[cause]} unknown" if percent is None else f"{LABELS[cause]} at {percent:.1f}%"


def reason(metric: Metric, sample: Sample) -> str:
    """Return why a metric holds: ``RAM at 91.2% (throttle at 90%, container)``."""
    below = metric.percent is not None and not metric.crossed
    edge = f"resume at {metric.resume:g}%" if below else f"throttle at {metric.throttle:g}%"
    scopes = {"memory": f", {sample.scope}", "cpu": f", {sample.cpu_scope}"}
    scope = scopes.get(metric.cause, "")
    return f"{format_metric(metric.cause, sample)} ({edge}{scope})"


def status(settings: GovernorSettings, gate: Gate, sample: Sample) -> dict[str, Any]:
    """Return state, reasons, percentages and thresholds (throttle, resume), JSON-serialisable."""
    watched = metrics(settings, sample)
    percents = {metric.cause: getattr(sample, f"{metric.cause}_percent") for metric in watched}
    percents["cpu"] = sample.cpu_percent
    return {
        "mode": settings.memory_governor,
        "state": "held" if gate.held else "consuming",
        "reasons": list(gate.reasons),
        "causes": sorted(gate.causes),
        "scope": sample.scope,
        "memory_used_bytes": sample.memory_used_bytes,
        "memory_limit_bytes": sample.memory_limit_bytes,
        "percent": {name: None if value is None else round(value, 1) for name, value in percents.items()},
        "thresholds": {metric.cause: [metric.throttle, round(metric.resume, 6)] for metric in watched},
        "faults": list(sample.faults),
    }
