"""HTTP client for push services: picks a service for a pipeline and posts batches, each with a deadline."""

import logging
import time

import httpx
from django.conf import settings
from pydantic import ValidationError

from ami.main.services import outbound
from ami.main.services.outbound import EndpointRefused
from ami.ml.errors import PipelineNotConfigured, ServiceRefused, ServiceUnreachable
from ami.ml.models import Pipeline, ProcessingService
from ami.ml.schemas import MAX_BATCH, PipelineRequest, PipelineResultsResponse

logger = logging.getLogger(__name__)

MAX_BATCH_SIZE = MAX_BATCH
TRIES = 3
BACKOFF_SECONDS = 1.0
TRY_AGAIN = frozenset({502, 503, 504})
PROCESS_TIMEOUT = httpx.Timeout(120.0, connect=5.0)
"""A slower batch fails. Must stay below the soft time limit of the queues that run jobs."""


def service_for(pipeline: Pipeline, project_id: int) -> ProcessingService:
    """Return the best push service that runs the pipeline for the project: live before dead, then by latency.

    Raises:
        PipelineNotConfigured: no service with an address runs it.
    """
    services = (
        pipeline.processing_services.filter(projects=project_id).exclude(endpoint_url=None).exclude(endpoint_url="")
    )
    best = sorted(services, key=lambda s: (s.last_seen_live is not True, s.last_seen_latency or 0.0, s.pk))
    if not best:
        raise PipelineNotConfigured(
            f"No processing service with an address runs '{pipeline.slug}' for project {project_id}. Register one."
        )
    return best[0]


def process(service: ProcessingService, request: PipelineRequest) -> PipelineResultsResponse:
    """POST one batch to the service and return its response.

    Failed connections and 502, 503, 504 are tried three times. A timeout while the service works is not retried: the
    service may still be processing the batch.

    Raises:
        ServiceUnreachable: no answer, or a forbidden address (ami.main.services.outbound).
        ServiceRefused: a status of 400 or more, or a body that is not a pipeline response.
    """
    url = f"{(service.endpoint_url or '').rstrip('/')}/process"
    answer = _post(url, request.model_dump(mode="json", exclude_none=True), service.name)
    if answer.status_code >= 400:
        raise ServiceRefused(f"{service.name} answered {answer.status_code}: {answer.text[:500]}")
    try:
        return PipelineResultsResponse.model_validate_json(answer.content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ServiceRefused(
            f"{service.name} sent a body that is not a pipeline response: {field}: {first['msg']}"
        ) from error


def _post(url: str, body: dict[str, object], name: str) -> httpx.Response:
    last = ""
    with outbound.client(timeout=PROCESS_TIMEOUT) as client:
        for attempt in range(TRIES):
            if attempt:
                time.sleep(BACKOFF_SECONDS * 2 ** (attempt - 1))
            try:
                most, seconds = settings.ANTENNA_RESULT_MAX_BYTES, PROCESS_TIMEOUT.read or 0.0
                answer = outbound.fetch(client, "POST", url, most, seconds, json=body)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                last = type(error).__name__
                continue
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise ServiceUnreachable(f"{name} did not answer: {type(error).__name__}.") from error
            except EndpointRefused as error:
                raise ServiceUnreachable(f"{name} is not called: {error}") from error
            if answer.status_code not in TRY_AGAIN:
                return answer
            last = f"status {answer.status_code}"
    raise ServiceUnreachable(f"{name} did not answer after {TRIES} tries: {last}.")
