"""The names of what a job has on JetStream; pull workers and other programs know them."""

import re

ADVISORIES_STREAM = "advisories"
ADVISORIES_SUBJECT = "$JS.EVENT.ADVISORY.>"
_STREAM = re.compile(r"^job_(\d+)$")


def stream(job_id: int) -> str:
    """Return the name of the job's stream."""
    return f"job_{job_id}"


def subject(job_id: int) -> str:
    """Return the subject of the job's tasks."""
    return f"job.{job_id}.tasks"


def consumer(job_id: int) -> str:
    """Return the name of the job's durable pull consumer."""
    return f"job-{job_id}-consumer"


def dead_letters(job_id: int) -> str:
    """Return the name of the durable on the advisories of the job's exhausted deliveries."""
    return f"job-{job_id}-dlq"


def exhausted_subject(job_id: int) -> str:
    """Return the subject on which JetStream says that a message of the job was delivered too often."""
    return f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream(job_id)}.{consumer(job_id)}"


def message_id(job_id: int, image_id: int) -> str:
    """Return the identity by which JetStream drops a message that is published twice."""
    return f"job-{job_id}-{image_id}"


def job_id_of(stream_name: str) -> int | None:
    """Return whose stream this is; None for a stream that belongs to no job."""
    match = _STREAM.match(stream_name)
    return int(match.group(1)) if match else None
