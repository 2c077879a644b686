"""Whether the bucket for media and results answers, where files are kept in one."""

from collections.abc import Iterator
from typing import Any

from django.core.files.storage import default_storage

from ami.main.services.stored_files import in_folder
from ami.queues.connection_reasons import ANSWER_SECONDS, LOGIN, reason
from ami.queues.diagnostics.finding import Finding

#: By the status of the answer: why, and what helps.
REFUSALS = {
    403: (LOGIN, "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or let them list the bucket"),
    404: ("there is no such bucket", "create it or correct ANTENNA_S3_BUCKET"),
}


def findings() -> Iterator[Finding]:
    """Yield a finding where it does not, after a few seconds at most."""
    if in_folder():
        return
    import boto3  # Few deployments have a bucket.
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    storage: Any = default_storage
    limits = {"connect_timeout": ANSWER_SECONDS, "read_timeout": ANSWER_SECONDS, "retries": {"total_max_attempts": 1}}
    config = Config(signature_version=storage.signature_version, **limits)
    try:
        client = boto3.client("s3", endpoint_url=storage.endpoint_url, region_name=storage.region_name, config=config)
        client.head_bucket(Bucket=storage.bucket_name)
    except (BotoCoreError, ClientError) as error:
        yield Finding("error", "bucket", sentence(error))


def sentence(error: BaseException) -> str:
    """Return why the bucket cannot be used, and the remedy; no key is in it."""
    storage: Any = default_storage
    status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
    why, remedy = REFUSALS.get(status, (reason(error), "start its server or correct ANTENNA_S3_ENDPOINT_URL"))
    where = f"{storage.bucket_name} at {storage.endpoint_url or 'Amazon'}"
    return (
        f"The bucket {where} cannot be used: {why}; {remedy}. Pictures, results and exports are neither kept nor read."
    )
