"""Probes processing services concurrently, each with its own deadline (incident 9), and stores the outcome."""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
from django.db.models import Q, QuerySet
from django.utils import timezone
from pydantic import ValidationError

from ami.main.services import outbound
from ami.main.services.outbound import EndpointRefused
from ami.ml.models import Pipeline, ProcessingService
from ami.ml.schemas import (
    PipelineConfigResponse,
    ProcessingServiceInfoResponse,
    ProcessingServiceStatusResponse,
)
from ami.queues.redaction import redact, redact_text

logger = logging.getLogger(__name__)

UNSEEN_SECONDS = 60
PROBE_SECONDS = 8.0
ALL_SECONDS = 50.0
AT_ONCE = 32
MAX_INFO_BYTES = 64 * 1024**2
MAX_READY_BYTES = 1024**2


@dataclass(frozen=True)
class Probe:
    """The outcome of one probe; ``latency`` in seconds."""

    live: bool
    latency: float
    pipelines: tuple[str, ...] = ()
    error: str = ""


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
    """Store the outcome; a service that does not answer keeps its ``last_seen``."""
    values: dict[str, object] = {"last_seen_live": probe.live, "last_seen_latency": probe.latency}
    if probe.live:
        values["last_seen"] = timezone.now()
    ProcessingService.objects.filter(pk=pk).update(**values)


async def _probe_all(addresses: list[tuple[int, str]]) -> dict[int, Probe]:
    slots = asyncio.Semaphore(AT_ONCE)
    probes: dict[int, Probe] = {}

    async with outbound.async_client(timeout=PROBE_SECONDS) as client:

        async def one(pk: int, address: str) -> None:
            async with slots:
                probes[pk] = await _probe(client, address)

        try:
            async with asyncio.timeout(ALL_SECONDS):
                await asyncio.gather(*(one(*pair) for pair in addresses))
        except TimeoutError:
            logger.warning(
                "Probes timed out: %d of %d services not probed.", len(addresses) - len(probes), len(addresses)
            )
    return probes


async def _probe(client: httpx.AsyncClient, address: str) -> Probe:
    started = time.monotonic()
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            answer = await outbound.fetch_async(client, f"{address.rstrip('/')}/readyz", MAX_READY_BYTES)
        latency = time.monotonic() - started
        if answer.status_code != 200:
            return Probe(False, latency, error=f"/readyz answered {answer.status_code}")
        return Probe(True, latency, _slugs(answer))
    except EndpointRefused as error:
        return Probe(False, time.monotonic() - started, error=str(error)[:500])
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError, ValueError, RecursionError) as error:
        return Probe(False, time.monotonic() - started, error=f"{type(error).__name__} {error}".strip()[:500])


def _slugs(answer: httpx.Response) -> tuple[str, ...]:
    body = answer.json()
    slugs = body.get("status") if isinstance(body, dict) else None
    return tuple(str(slug) for slug in slugs) if isinstance(slugs, list) else ()


def check_now(service: ProcessingService, projects: "QuerySet[Any] | None" = None) -> ProcessingServiceStatusResponse:
    """Probe one service and return its status for the user; a pull service is live if it called within a minute.

    ``projects`` are keys of the user's projects: pipelines of other projects are left out.
    """
    if service.pulls:
        mark_unseen_offline()
        service.refresh_from_db()
        live = bool(service.last_seen_live)
        return _status(service, Probe(live, 0.0, _registered(service, projects)), [], True)
    probe = probe_all([service]).get(service.pk, Probe(False, PROBE_SECONDS, error="no answer in time"))
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
    )
