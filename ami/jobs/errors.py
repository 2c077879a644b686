"""What can go wrong with a job."""


class JobStopped(Exception):
    """The job was cancelled or finished by somebody else while it was being worked on."""


class NotAllowed(Exception):
    """The job's state does not allow what was asked; the message says which state and what to do."""


class UnknownKind(LookupError):
    """No code is registered for this type of job."""


class NatsUnavailable(Exception):
    """NATS did not answer in time, or failed a moment ago; nothing was lost, try again later."""


class ResultMissing(Exception):
    """The body of a stored result is not in the storage."""
