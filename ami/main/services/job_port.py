"""The port through which the core starts background jobs; `ami.jobs` connects it when Django is ready."""

from typing import Any, Protocol

from ami.queues.publish import PublishedTask


class JobStarter(Protocol):
    """The signature of `ami.jobs.services.operations.create_and_enqueue`."""

    def __call__(self, kind: str, project: Any, *, name: str, **relations: Any) -> tuple[Any, PublishedTask]:
        """Create a job of ``kind`` and publish its first slice; return the job and the published task."""


_starter: JobStarter | None = None


def connect(starter: JobStarter) -> None:
    global _starter
    _starter = starter


def start_job(kind: str, project: Any, *, name: str, **relations: Any) -> tuple[Any, PublishedTask]:
    """Create a job and publish its first slice on behalf of a user; ``relations`` are fields of the job.

    Raises:
        RuntimeError: the port is not connected.
        kombu.exceptions.OperationalError: the broker did not accept the message; no job was created.
    """
    if _starter is None:
        raise RuntimeError("The job port is not connected: add ami.jobs to INSTALLED_APPS.")
    return _starter(kind, project, name=name, **relations)
