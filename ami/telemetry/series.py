"""Figures of a queue or a worker over time."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Series:
    """Values by column at ``times`` (epoch seconds); None where nothing was sampled."""

    times: list[float] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Mark:
    """Something that happened at ``at`` (epoch seconds): ``kind`` is paused, resumed or version."""

    at: float
    kind: str
    text: str


def queue_series(queue: str, span_seconds: float) -> Series:  # noqa: ARG001
    """Return what waited, ran, began and ended in a queue."""
    return Series()


def marks(queue: str, span_seconds: float) -> list[Mark]:  # noqa: ARG001
    """Return the pauses of a queue and the new versions of its workers."""
    return []


def worker_series(node: str, span_seconds: float) -> Series:  # noqa: ARG001
    """Return the memory of a worker, and what it ran."""
    return Series()
