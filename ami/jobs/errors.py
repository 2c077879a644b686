"""Errors of jobs."""


class JobStopped(Exception):
    """The job was cancelled or finished while this worker was running it."""


class NotAllowed(Exception):
    """The job's status does not allow the operation; the message names the status and the remedy."""


class UnknownKind(LookupError):
    """No code is registered for this type of job."""


class NatsUnavailable(Exception):
    """NATS did not answer in time, or failed within the last two seconds; nothing is lost, try again later."""


class ResultMissing(Exception):
    """The body of a stored result is not in the storage."""
