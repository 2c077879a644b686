"""Probes processing services concurrently, each with its own deadline (incident 9), and stores the outcome."""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import httpx
from django.db.models import Q, QuerySet
from django.utils import timezone
from pydantic import ValidationError

from ami.main.services import outbound
from ami.main.services.outbound import EndpointRefused
from ami.ml.cold_start import COLD_START_SECONDS, UNSEEN_SECONDS
from ami.ml.models import Pipeline, ProcessingService
from ami.ml.schemas import (
    PipelineConfigResponse,
    ProcessingServiceInfoResponse,
    ProcessingServiceStatusResponse,
)
from ami.ml.services import liveness
from ami.queues.redaction import redact, redact_text

logger = logging.getLogger(__name__)

PROBE_SECONDS = 8.0
"""One attempt of beat's sweep; and how long a person's check goes on where connections are refused."""
WAIT_SECONDS = 2.0
NOT_READY = frozenset({429, 500, 502, 503, 504})
"""Answers of a service that may still be starting, or of a proxy before it."""
ALL_SECONDS = 50.0
AT_ONCE = 32
MAX_INFO_BYTES = 64 * 1024**2
MAX_READY_BYTES = 1024**2


@dataclass(frozen=True)
class Probe:
    """The outcome of one probe; ``latency`` in seconds. ``may_start``: whether it may answer later."""

    live: bool
    latency: float
    pipelines: tuple[str, ...] = ()
    error: str = ""
    may_start: bool = False
    is_refused: bool = False


def mark_unseen_offline() -> int:
    """Mark pull services without a call for a minute as offline, in one statement; return how many."""
    too_old = timezone.now() - timedelta(seconds=UNSEEN_SECONDS)
    pulls = Q(endpoint_url=None) | Q(endpoint_url="")
    unseen = Q(last_seen__lt=too_old) | Q(last_seen=None)
    services = ProcessingService.objects.filter(pulls & unseen).exclude(last_seen_live=False)
    return services.update(last_seen_live=False)


def probe_all(services: Iterable[ProcessingService]) -> dict[int, Probe]:
    """Probe all services concurrently and store the outcomes; takes less than a minute however many are dead."""
    services = list(services)
    probes = asyncio.run(_probe_all([(s.pk, s.endpoint_url or "") for s in services]))
    for pk, probe in sorted(probes.items()):
        save_probe(pk, probe)
    return probes


def save_probe(pk: int, probe: Probe) -> None:
    """Store the outcome; see `ami.ml.services.liveness`."""
    if probe.live:
        liveness.answered(pk, last_seen_latency=probe.latency)
    else:
        liveness.failed(pk, may_start=probe.may_start, last_seen_latency=probe.latency)


async def _probe_all(addresses: list[tuple[int, str]]) -> dict[int, Probe]:
    slots = asyncio.Semaphore(AT_ONCE)
    probes: dict[int, Probe] = {}

    async with outbound.async_client(timeout=PROBE_SECONDS) as client:

        async def one(pk: int, address: str) -> None:
            async with slots:
                probes[pk] = await _probe(client, address, PROBE_SECONDS)

        try:
            async with asyncio.timeout(ALL_SECONDS):
                await asyncio.gather(*(one(*pair) for pair in addresses))
        except TimeoutError:
            logger.warning(
                "Probes timed out: %d of %d services not probed.", len(addresses) - len(probes), len(addresses)
            )
    return probes


async def _probe_patiently(address: str, seconds: float) -> Probe:
    """Probe again until the service answers, for at most ``seconds``; one attempt may take all of them.

    A refused connection is tried for `PROBE_SECONDS` only: nobody listens there, so nothing is loading its models.
    """
    started = time.monotonic()
    async with outbound.async_client(timeout=seconds) as client:
        while True:
            probe = await _probe(client, address, started + seconds - time.monotonic())
            took = time.monotonic() - started
            most = min(seconds, PROBE_SECONDS) if probe.is_refused else seconds
            if probe.live or not probe.may_start or took + WAIT_SECONDS >= most:
                return replace(probe, latency=took)
            await asyncio.sleep(WAIT_SECONDS)


async def _probe(client: httpx.AsyncClient, address: str, seconds: float) -> Probe:
    started = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            answer = await outbound.fetch_async(client, f"{address.rstrip('/')}/readyz", MAX_READY_BYTES)
        latency = time.monotonic() - started
        if answer.status_code != 200:
            may_start = answer.status_code in NOT_READY
            return Probe(False, latency, error=f"/readyz answered {answer.status_code}", may_start=may_start)
        return Probe(True, latency, _slugs(answer))
    except EndpointRefused as error:
        return Probe(False, time.monotonic() - started, error=str(error)[:500])
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError, ValueError, RecursionError) as error:
        return Probe(
            False,
            time.monotonic() - started,
            error=f"{type(error).__name__} {error}".strip()[:500],
            may_start=isinstance(error, (httpx.TransportError, TimeoutError, OSError)),
            is_refused=isinstance(error, httpx.ConnectError),
        )


def _slugs(answer: httpx.Response) -> tuple[str, ...]:
    body = answer.json()
    slugs = body.get("status") if isinstance(body, dict) else None
    return tuple(str(slug) for slug in slugs) if isinstance(slugs, list) else ()


def check_now(
    service: ProcessingService, projects: "QuerySet[Any] | None" = None, seconds: float = COLD_START_SECONDS
) -> ProcessingServiceStatusResponse:
    """Probe one service and return its status for the user; a pull service is live if it called within a minute.

    ``projects`` are keys of the user's projects: pipelines of other projects are left out. A service that does not
    answer is given ``seconds`` to start.
    """
    if service.pulls:
        mark_unseen_offline()
        service.refresh_from_db()
        live = bool(service.last_seen_live)
        return _status(service, Probe(live, 0.0, _registered(service, projects)), [], True)
    probe = asyncio.run(_probe_patiently(service.endpoint_url or "", seconds))
    save_probe(service.pk, probe)
    service.refresh_from_db()
    configs, error = fetch_configs(service) if probe.live else ([], probe.error)
    return _status(service, probe, configs, not error, error)


def fetch_configs(service: ProcessingService) -> tuple[list[PipelineConfigResponse], str]:
    """Return the pipelines that ``/info`` describes, and the error (empty if there was none)."""
    try:
        with outbound.client(timeout=PROBE_SECONDS) as client:
            address = f"{(service.endpoint_url or '').rstrip('/')}/info"
            answer = outbound.fetch(client, "GET", address, MAX_INFO_BYTES, PROBE_SECONDS)
        answer.raise_for_status()
        return ProcessingServiceInfoResponse.model_validate_json(answer.content).pipelines, ""
    except (httpx.HTTPError, httpx.InvalidURL, ValidationError, EndpointRefused) as error:
        return [], f"/info: {type(error).__name__} {error}"[:500]


def _registered(service: ProcessingService, projects: "QuerySet[Any] | None") -> tuple[str, ...]:
    pipelines = Pipeline.objects.all() if projects is None else Pipeline.objects.used_in(projects)
    named = pipelines.filter(processing_services=service).order_by("slug")
    return tuple(named.values_list("slug", flat=True).distinct())


def _status(
    service: ProcessingService,
    probe: Probe,
    configs: list[PipelineConfigResponse],
    successful: bool,
    error: str = "",
) -> ProcessingServiceStatusResponse:
    return ProcessingServiceStatusResponse(
        timestamp=timezone.now(),
        request_successful=successful,
        pipeline_configs=configs,
        error=redact_text(error) or None,
        server_live=probe.live,
        pipelines_online=list(probe.pipelines) if probe.live else [],
        endpoint_url=redact(service.endpoint_url),
        latency=probe.latency,
        state=service.state,
    )
