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
from processing_service.backoff import Backoff
from processing_service.downloads import RETRIES, Downloader, DownloadError, NetworkError
from processing_service.pictures import MAX_PIXELS, PictureError, open_picture
from processing_service.pipelines import PipelineError, run_pipeline

IMAGE_ERRORS = (DownloadError, PictureError, PipelineError)
"""Errors of one capture; their messages may be shown to the client. `NetworkError` is not one: it may pass."""

ONE_ATTEMPT = Backoff(attempts=1)
"""For the rest of a batch in which the network failed for one capture: the retries are used up."""


class ImageProcessor:
    """Runs pipelines on captures given by URL; thread-safe."""

    def __init__(self, downloader: Downloader, max_pixels: int = MAX_PIXELS) -> None:
        self._downloader = downloader
        self._max_pixels = max_pixels

    def one(
        self,
        slug: str,
        image: SourceImageRequest,
        existing: Sequence[DetectionRequest] | None = None,
        retries: Backoff = RETRIES,
    ) -> list[DetectionResponse]:
        """Return the detections of one capture; one of `IMAGE_ERRORS` if it cannot be processed.

        `NetworkError` if the picture could not be fetched now.
        """
        picture = open_picture(self._downloader.fetch(image.url, retries), self._max_pixels)
        return run_pipeline(slug, image.id, picture, existing)

    def results(self, slug: str, image: SourceImageRequest, retries: Backoff = RETRIES) -> PipelineResultsResponse:
        """Process one capture and return its detections as a pipeline's results; errors as `one`."""
        started = time.perf_counter()
        detections = self.one(slug, image, retries=retries)
        return PipelineResultsResponse(
            pipeline=slug,
            total_time=time.perf_counter() - started,
            source_images=[SourceImageResponse(id=image.id, url=image.url)],
            detections=detections,
        )

    def request(self, request: PipelineRequest) -> PipelineResultsResponse:
        """Process a whole request; failed captures are listed in `errors`.

        `PipelineError` if all failed; `NetworkError` instead if one of these may succeed later.
        """
        started = time.perf_counter()
        existing = _by_image(request.detections or [])
        images = {one.id: one for one in [*(d.source_image for d in request.detections or []), *request.source_images]}
        done: list[SourceImageResponse] = []
        detections: list[DetectionResponse] = []
        errors: list[str] = []
        lost: NetworkError | None = None
        for image in images.values():
            try:
                retries = ONE_ATTEMPT if lost else RETRIES
                detections += self.one(request.pipeline, image, existing.get(image.id), retries)
                done.append(SourceImageResponse(id=image.id, url=image.url))
            except IMAGE_ERRORS as error:
                errors.append(f"image {image.id}: {error}")
            except NetworkError as error:
                lost = error
                errors.append(f"image {image.id}: {error}")
        if lost and not done:
            raise NetworkError("; ".join(errors[:20]), lost.retry_after)
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
