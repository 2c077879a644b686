"""Names of a job's streams, subjects and consumers on JetStream; pull workers and other programs rely on them."""

import re

ADVISORIES_STREAM = "advisories"
ADVISORIES_SUBJECT = "$JS.EVENT.ADVISORY.>"

#: JetStream forgets a job's messages after this time.
STREAM_MAX_AGE_SECONDS = 24 * 3600

_STREAM = re.compile(r"^job_(\d+)$")


def stream(job_id: int) -> str:
    return f"job_{job_id}"


def subject(job_id: int) -> str:
    return f"job.{job_id}.tasks"


def consumer(job_id: int) -> str:
    """Return the name of the job's durable pull consumer."""
    return f"job-{job_id}-consumer"


def advisories(job_id: int) -> str:
    """Return the name of the durable consumer of the job's advisories."""
    return f"job-{job_id}-dlq"


def exhausted_subject(job_id: int) -> str:
    """Return the subject of JetStream's advisories that a message of the job has used up its deliveries."""
    return f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream(job_id)}.{consumer(job_id)}"


def message_id(job_id: int, image_id: int) -> str:
    """Return the id by which JetStream drops duplicates."""
    return f"job-{job_id}-{image_id}"


def job_id_of(stream_name: str) -> int | None:
    """Return the job of a stream; None if it is not a job's stream."""
    match = _STREAM.match(stream_name)
    return int(match.group(1)) if match else None
