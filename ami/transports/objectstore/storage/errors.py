"""The errors of stores and their queues."""

import errno


class JQueueError(Exception):
    """Base of all errors of a queue over object storage."""


class CASConflictError(JQueueError):
    """Another writer was first: a create found an object, or a replace found another version than it named."""


class JobNotFoundError(JQueueError):
    """The queue has no job of this id: it was acknowledged, or never there."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job '{job_id}' in this queue")
        self.job_id = job_id


class StorageError(JQueueError):
    """The storage failed; ``cause`` is its exception, None where the failure was found here (a torn file)."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause

    def __str__(self) -> str:
        message, cause = super().__str__(), "" if self.cause is None else str(self.cause)
        # Most messages quote their cause already.
        return message if cause in message else f"{message}: {cause}"


class UnfitStorageError(JQueueError):
    """The storage lacks what every promise rests on, a condition or a lock: trying again does not help."""


class DamageError(StorageError):
    """A file or object is no longer as it was written; ``check --repair`` keeps what can be read of a folder."""


class StorageFullError(StorageError):
    """The disk, or the quota on it, has no room."""


def from_os(message: str, cause: OSError) -> StorageError:
    """Return the error for what the system refused: StorageFullError where it had no room."""
    kind = StorageFullError if cause.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
    return kind(message, cause)
