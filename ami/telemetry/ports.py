"""What telemetry hears from the apps above it; `config` connects them."""

from collections.abc import Callable, Iterable

from ami.telemetry.snapshots.shape import JobFigures

_jobs: Callable[[], Iterable[JobFigures]] = tuple


def connect_jobs(function: Callable[[], Iterable[JobFigures]]) -> None:
    """Connect what lists the running jobs; few statements, since it is called for every snapshot."""
    global _jobs
    _jobs = function


def jobs() -> tuple[JobFigures, ...]:
    return tuple(_jobs())
