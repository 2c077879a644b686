"""What the job queue raises; the storages below it raise the same."""

from ami.transports.objectstore.storage.errors import (
    CASConflictError,
    JobNotFoundError,
    JQueueError,
    StorageError,
    UnfitStorageError,
)

__all__ = ["CASConflictError", "JQueueError", "JobNotFoundError", "StorageError", "UnfitStorageError"]
