"""What telemetry hears from the apps above it; `config` connects them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ami.telemetry.snapshots.shape import JobFigures

#: By (kind, status).
JobCounts = Mapping[tuple[str, str], int]

_jobs: Callable[[], Iterable[JobFigures]] = tuple
_job_counts: Callable[[], JobCounts] = dict


def connect_jobs(function: Callable[[], Iterable[JobFigures]]) -> None:
    """Connect what lists the running jobs; few statements, since it is called for every snapshot."""
    global _jobs
    _jobs = function


def jobs() -> tuple[JobFigures, ...]:
    return tuple(_jobs())


def connect_job_counts(function: Callable[[], JobCounts]) -> None:
    """Connect what counts the jobs that have begun or wait; one statement, since it is called for every scrape."""
    global _job_counts
    _job_counts = function


def job_counts() -> JobCounts:
    return _job_counts()
