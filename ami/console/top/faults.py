"""One sentence about a database that does not answer."""

from ami.queues.redaction import redact_text

LONGEST = 160


def database_fault(error: BaseException) -> str:
    """Return what the database's library says, on one line and without a password."""
    said = " ".join(redact_text(str(error)).split())[:LONGEST] or type(error).__name__
    return f"The database does not answer: {said}"
