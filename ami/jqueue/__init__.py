"""A job queue over object storage: in memory, a folder, S3, Google Cloud Storage, or one blob anywhere."""

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
