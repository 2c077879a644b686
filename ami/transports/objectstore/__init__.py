"""A job queue over object storage: in memory, a folder, S3, Google Cloud Storage, or one blob anywhere."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ami.transports.objectstore.adapters.storage.filesystem import LocalFileSystemStorage
    from ami.transports.objectstore.adapters.storage.gcs import GCSStorage
    from ami.transports.objectstore.adapters.storage.memory import InMemoryStorage
    from ami.transports.objectstore.adapters.storage.s3 import S3Storage
    from ami.transports.objectstore.broker import BrokerQueue
    from ami.transports.objectstore.direct import DirectQueue
    from ami.transports.objectstore.errors import CASConflictError, JobNotFoundError, JQueueError, StorageError
    from ami.transports.objectstore.group_commit import GroupCommitLoop
    from ami.transports.objectstore.heartbeat import HeartbeatManager
    from ami.transports.objectstore.jobs import Job, JobStatus, QueueState
    from ami.transports.objectstore.ports import ObjectStoragePort

#: Where each name is. Nothing is imported before it is asked for: a Celery worker needs none of the job queue.
_PLACES = {
    "BrokerQueue": "broker",
    "CASConflictError": "errors",
    "DirectQueue": "direct",
    "GCSStorage": "adapters.storage.gcs",
    "GroupCommitLoop": "group_commit",
    "HeartbeatManager": "heartbeat",
    "InMemoryStorage": "adapters.storage.memory",
    "JQueueError": "errors",
    "Job": "jobs",
    "JobNotFoundError": "errors",
    "JobStatus": "jobs",
    "LocalFileSystemStorage": "adapters.storage.filesystem",
    "ObjectStoragePort": "ports",
    "QueueState": "jobs",
    "S3Storage": "adapters.storage.s3",
    "StorageError": "errors",
}

__all__ = [
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
