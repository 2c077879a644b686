"""A job queue over object storage: in memory, a folder, S3, Google Cloud Storage, or one blob anywhere."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ami.jqueue.adapters.storage.filesystem import LocalFileSystemStorage
    from ami.jqueue.adapters.storage.gcs import GCSStorage
    from ami.jqueue.adapters.storage.memory import InMemoryStorage
    from ami.jqueue.adapters.storage.s3 import S3Storage
    from ami.jqueue.core.broker import BrokerQueue
    from ami.jqueue.core.direct import DirectQueue
    from ami.jqueue.core.group_commit import GroupCommitLoop
    from ami.jqueue.core.heartbeat import HeartbeatManager
    from ami.jqueue.domain.errors import CASConflictError, JobNotFoundError, JQueueError, StorageError
    from ami.jqueue.domain.models import Job, JobStatus, QueueState
    from ami.jqueue.ports.storage import ObjectStoragePort
    from ami.jqueue.version import __version__

#: Where each name is. Nothing is imported before it is asked for: a Celery worker needs none of the job queue.
_PLACES = {
    "__version__": "version",
    "BrokerQueue": "core.broker",
    "CASConflictError": "domain.errors",
    "DirectQueue": "core.direct",
    "GCSStorage": "adapters.storage.gcs",
    "GroupCommitLoop": "core.group_commit",
    "HeartbeatManager": "core.heartbeat",
    "InMemoryStorage": "adapters.storage.memory",
    "JQueueError": "domain.errors",
    "Job": "domain.models",
    "JobNotFoundError": "domain.errors",
    "JobStatus": "domain.models",
    "LocalFileSystemStorage": "adapters.storage.filesystem",
    "ObjectStoragePort": "ports.storage",
    "QueueState": "domain.models",
    "S3Storage": "adapters.storage.s3",
    "StorageError": "domain.errors",
}

__all__ = [
    "__version__",
    "BrokerQueue",
    "CASConflictError",
    "DirectQueue",
    "GCSStorage",
    "GroupCommitLoop",
    "HeartbeatManager",
    "InMemoryStorage",
    "JQueueError",
    "Job",
    "JobNotFoundError",
    "JobStatus",
    "LocalFileSystemStorage",
    "ObjectStoragePort",
    "QueueState",
    "S3Storage",
    "StorageError",
]


def __getattr__(name: str) -> Any:
    try:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted(_PLACES)
