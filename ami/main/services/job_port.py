"""The port through which the core starts background jobs; `ami.jobs` connects it when Django is ready."""

from typing import Any, Protocol

from ami.queues.publish import PublishedTask


class JobStarter(Protocol):
    """What `ami.jobs.services.operations.create_and_enqueue` is."""

    def __call__(self, kind: str, project: Any, *, name: str, **relations: Any) -> tuple[Any, PublishedTask]:
        """Create a job of ``kind`` and publish its first slice; return the job's row and what was published."""


_starter: JobStarter | None = None


def connect(starter: JobStarter) -> None:
    """Have jobs started by ``starter`` from now on."""
    global _starter
    _starter = starter


def start_job(kind: str, project: Any, *, name: str, **relations: Any) -> tuple[Any, PublishedTask]:
    """Create a job and publish its first slice on behalf of a user; ``relations`` are fields of the job's row.

    Raises:
        RuntimeError: no app connected the port.
        kombu.exceptions.OperationalError: the broker did not take the message; there is no job.
    """
    if _starter is None:
        raise RuntimeError("No app starts jobs: add ami.jobs to INSTALLED_APPS.")
    return _starter(kind, project, name=name, **relations)
