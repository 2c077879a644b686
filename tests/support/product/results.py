"""Results of processing services, handled without a worker."""

from typing import Any

from ami.jobs.models import Job
from ami.jobs.services import ingest, stored_results


def handle_result(job_id: int, *, result: Any, reply_subject: str = "") -> None:
    """Store a result as if it had been posted, and handle it as a message of its own."""
    row = stored_results.store(Job(pk=job_id), reply_subject, result)
    ingest.handle(job_id, row.key, reply_subject)
