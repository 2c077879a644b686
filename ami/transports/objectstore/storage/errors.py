"""What a store and its queues raise."""


class JQueueError(Exception):
    """Base of everything that a queue over object storage raises."""


class CASConflictError(JQueueError):
    """Somebody else wrote first: a create found an object, or a replace found another version than it named."""


class JobNotFoundError(JQueueError):
    """No job of this id is in the queue (any more): it was acknowledged, or never there."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job '{job_id}' in this queue")
        self.job_id = job_id


class StorageError(JQueueError):
    """The storage failed; ``cause`` is what it raised, None where the failure was found here (a torn file)."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause
