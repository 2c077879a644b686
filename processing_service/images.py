"""Processes captures one at a time (fetch, open, run), so that each thread has one picture in memory."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ami.ml.schemas import (
    DetectionRequest,
    DetectionResponse,
    PipelineRequest,
    PipelineResultsResponse,
    SourceImageRequest,
    SourceImageResponse,
)
from processing_service.downloads import Downloader, DownloadError
from processing_service.pictures import MAX_PIXELS, PictureError, open_picture
from processing_service.pipelines import PipelineError, run_pipeline

IMAGE_ERRORS = (DownloadError, PictureError, PipelineError)
"""Errors of one capture; their messages may be shown to the client."""


class ImageProcessor:
    """Runs pipelines on captures given by URL; thread-safe."""

    def __init__(self, downloader: Downloader, max_pixels: int = MAX_PIXELS) -> None:
        self._downloader = downloader
        self._max_pixels = max_pixels

    def one(
        self, slug: str, image: SourceImageRequest, existing: Sequence[DetectionRequest] | None = None
    ) -> list[DetectionResponse]:
        """Return the detections of one capture; one of `IMAGE_ERRORS` if it cannot be processed."""
        picture = open_picture(self._downloader.fetch(image.url), self._max_pixels)
        return run_pipeline(slug, image.id, picture, existing)

    def results(self, slug: str, image: SourceImageRequest) -> PipelineResultsResponse:
        """Process one capture and return its detections as a pipeline's results."""
        started = time.perf_counter()
        detections = self.one(slug, image)
        return PipelineResultsResponse(
            pipeline=slug,
            total_time=time.perf_counter() - started,
            source_images=[SourceImageResponse(id=image.id, url=image.url)],
            detections=detections,
        )

    def request(self, request: PipelineRequest) -> PipelineResultsResponse:
        """Process a whole request; failed captures are listed in `errors`. `PipelineError` if all failed."""
        started = time.perf_counter()
        existing = _by_image(request.detections or [])
        images = {one.id: one for one in [*(d.source_image for d in request.detections or []), *request.source_images]}
        done: list[SourceImageResponse] = []
        detections: list[DetectionResponse] = []
        errors: list[str] = []
        for image in images.values():
            try:
                detections += self.one(request.pipeline, image, existing.get(image.id))
                done.append(SourceImageResponse(id=image.id, url=image.url))
            except IMAGE_ERRORS as error:
                errors.append(f"image {image.id}: {error}")
        if errors and not done:
            raise PipelineError("; ".join(errors[:20]))
        return PipelineResultsResponse(
            pipeline=request.pipeline,
            total_time=time.perf_counter() - started,
            source_images=done,
            detections=detections,
            errors=errors or None,
        )


def _by_image(detections: Sequence[DetectionRequest]) -> dict[str, list[DetectionRequest]]:
    grouped: dict[str, list[DetectionRequest]] = {}
    for detection in detections:
        grouped.setdefault(detection.source_image.id, []).append(detection)
    return grouped
