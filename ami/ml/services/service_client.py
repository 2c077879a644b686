"""HTTP client for push services: picks a service for a pipeline and posts batches, each with a deadline."""

import logging
import time
from collections.abc import Callable, Iterator
from itertools import count

import httpx
from django.conf import settings
from pydantic import ValidationError

from ami.main.services import outbound
from ami.main.services.outbound import EndpointRefused
from ami.ml.errors import PipelineNotConfigured, ServiceRefused, ServiceUnreachable
from ami.ml.models import Pipeline, ProcessingService
from ami.ml.schemas import MAX_BATCH, PipelineRequest, PipelineResultsResponse
from ami.ml.services import liveness
from ami.ml.services.service_choice import best_service

logger = logging.getLogger(__name__)

MAX_BATCH_SIZE = MAX_BATCH
TRIES = 3
BACKOFF_SECONDS = 1.0
TRY_AGAIN = frozenset({502, 503, 504})
RETRY_SECONDS = 30.0
CONNECT_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 5.0


def service_for(pipeline: Pipeline, project_id: int) -> ProcessingService:
    """Return the best push service that runs the pipeline for the project.

    Raises:
        PipelineNotConfigured: no service with an address runs it.
    """
    best = best_service(pipeline, project_id)
    if best is None:
        raise PipelineNotConfigured(
            f"No processing service with an address runs '{pipeline.slug}' for project {project_id}. Register one."
        )
    return best


def process(
    service: ProcessingService,
    request: PipelineRequest,
    *,
    cold_start_seconds: float = 0.0,
    pause: Callable[[], None] = lambda: None,
) -> PipelineResultsResponse:
    """POST one batch to the service and return its response; the service has ANTENNA_PROCESS_SECONDS for it.

    Failed connections and 502, 503, 504 are tried three times within `RETRY_SECONDS`, and without a limit within
    ``cold_start_seconds``: the service may be starting. ``pause`` is called before each further attempt; what it raises
    ends the wait. A timeout while the service works is not retried: the service may still be processing the batch.

    Raises:
        ServiceUnreachable: no answer, or a forbidden address (ami.main.services.outbound).
        ServiceRefused: a status of 400 or more, or a body that is not a pipeline response.
    """
    url = f"{(service.endpoint_url or '').rstrip('/')}/process"
    waits = _waits(cold_start_seconds)
    answer = _post(url, request.model_dump(mode="json", exclude_none=True), service, waits, pause)
    if service.last_seen_live is not True or service.failing_since:
        liveness.answered(service.pk)
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


def _waits(cold_start_seconds: float) -> Iterator[float]:
    """Yield the wait after each failed attempt, and end when no further attempt may be made."""
    began = time.monotonic()
    for failures in count(1):
        seconds = min(LONGEST_WAIT_SECONDS, BACKOFF_SECONDS * 2 ** (failures - 1))
        then = time.monotonic() - began + seconds
        if then > cold_start_seconds and (failures >= TRIES or then > RETRY_SECONDS):
            return
        yield seconds


def _post(
    url: str, body: dict[str, object], service: ProcessingService, waits: Iterator[float], pause: Callable[[], None]
) -> httpx.Response:
    seconds = float(settings.ANTENNA_PROCESS_SECONDS)
    began = time.monotonic()
    with outbound.client(timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS)) as client:
        for attempts in count(1):
            try:
                answer = outbound.fetch(client, "POST", url, settings.ANTENNA_RESULT_MAX_BYTES, seconds, json=body)
                if answer.status_code not in TRY_AGAIN:
                    return answer
                last = f"status {answer.status_code}"
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                last = type(error).__name__
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                liveness.failed(service.pk)
                raise ServiceUnreachable(f"{service.name} did not answer: {type(error).__name__}.") from error
            except EndpointRefused as error:
                raise ServiceUnreachable(f"{service.name} is not called: {error}") from error
            if attempts == 1:
                liveness.failed(service.pk)
                service.refresh_from_db(fields=["last_seen_live", "failing_since"])
            wait = next(waits, None)
            if wait is None:
                break
            pause()
            time.sleep(wait)
    took = time.monotonic() - began
    raise ServiceUnreachable(f"{service.name} did not answer after {attempts} attempts in {took:.0f} s: {last}.")
