"""Push mode: the HTTP API that Antenna calls, `/info`, `/livez`, `/readyz` and `/process`."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastapi import FastAPI, HTTPException

from ami.ml.schemas import PipelineRequest, PipelineResultsResponse, ProcessingServiceInfoResponse
from processing_service import catalogue
from processing_service.downloads import Downloader, DownloadLimits, NetworkError
from processing_service.images import ImageProcessor
from processing_service.logs import event
from processing_service.pictures import MAX_PIXELS
from processing_service.pipelines import PipelineError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PushSettings:
    """The served pipelines and the limits: `concurrency` requests at once, others wait up to `wait_seconds`."""

    slugs: Sequence[str] = ()
    limits: DownloadLimits = field(default_factory=DownloadLimits)
    max_pixels: int = MAX_PIXELS
    concurrency: int = 2
    wait_seconds: float = 60.0


def create_app(settings: PushSettings | None = None) -> FastAPI:
    """Return the application; `KeyError` for an unknown pipeline in the settings."""
    chosen = settings or PushSettings()
    pipelines = catalogue.chosen_pipelines(chosen.slugs)
    slugs = [pipeline.slug for pipeline in pipelines]
    downloader = Downloader(chosen.limits)
    worker = _Worker(ImageProcessor(downloader, chosen.max_pixels), slugs, chosen)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        downloader.close()

    app = FastAPI(title="Antenna reference processing service", lifespan=lifespan)

    @app.get("/info")
    def info() -> ProcessingServiceInfoResponse:
        return catalogue.info(pipelines)

    @app.get("/livez")
    async def livez() -> dict[str, bool]:
        return {"status": True}

    @app.get("/readyz")
    async def readyz() -> dict[str, list[str]]:
        if not slugs:
            raise HTTPException(503, "no pipeline is ready")
        return {"status": slugs}

    app.post("/process")(worker.process)
    return app


class _Worker:
    """Handles `POST /process`, a limited number at a time."""

    def __init__(self, processor: ImageProcessor, slugs: Sequence[str], settings: PushSettings) -> None:
        self._processor = processor
        self._slugs = slugs
        self._settings = settings
        self._slots = threading.BoundedSemaphore(settings.concurrency)

    def process(self, request: PipelineRequest) -> PipelineResultsResponse:
        """Run a pipeline on the pictures of the request."""
        if request.pipeline not in self._slugs:
            raise HTTPException(422, f"pipeline: no pipeline {request.pipeline!r}; there are: {', '.join(self._slugs)}")
        if not self._slots.acquire(timeout=self._settings.wait_seconds):
            raise HTTPException(503, "busy with other requests", headers={"Retry-After": "5"})
        try:
            results = self._processor.request(request)
        except NetworkError as error:
            log.warning(event("process postponed", pipeline=request.pipeline, error=error))
            # Antenna sends the batch again after 503, not after 422.
            raise HTTPException(503, str(error), headers={"Retry-After": "5"}) from error
        except PipelineError as error:
            log.warning(event("process refused", pipeline=request.pipeline, error=error))
            raise HTTPException(422, str(error)) from error
        finally:
            self._slots.release()
        log.info(
            event(
                "processed",
                pipeline=request.pipeline,
                images=len(results.source_images),
                detections=len(results.detections),
                errors=len(results.errors or ()),
                seconds=results.total_time,
            )
        )
        return results
