"""Runs a pipeline on one picture: detects boxes, or uses existing ones, and classifies each."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from ami.ml.schemas import (
    AlgorithmConfigResponse,
    AlgorithmReference,
    BoundingBox,
    ClassificationResponse,
    DetectionRequest,
    DetectionResponse,
)
from processing_service import catalogue
from processing_service.classifier import Classification, features_of, is_moth, species_of
from processing_service.detector import Insect, detect
from processing_service.pictures import Picture

CONSTANT_BOX = (80.0, 60.0, 240.0, 180.0)


class PipelineError(Exception):
    """Invalid input of a pipeline; the message names the field or the picture."""


def run_pipeline(
    slug: str, image_id: str, picture: Picture, existing: Sequence[DetectionRequest] | None = None
) -> list[DetectionResponse]:
    """Return the detections of one picture; none for an empty sheet.

    `existing` detections, if not None, replace the detector: their boxes and algorithms are returned unchanged.
    `PipelineError` for an unknown slug or a box outside the picture.
    """
    if slug == catalogue.SHEET_MOTHS:
        return _sheet_moths(image_id, picture, existing)
    if slug == catalogue.CONSTANT:
        return _constant(image_id, picture, existing)
    raise PipelineError(f"pipeline: no pipeline {slug!r}; there are: {', '.join(catalogue.PIPELINES)}")


def _sheet_moths(
    image_id: str, picture: Picture, existing: Sequence[DetectionRequest] | None
) -> list[DetectionResponse]:
    started = time.perf_counter()
    if existing is None:
        detector = catalogue.reference(catalogue.THRESHOLD_DETECTOR)
        boxes = [(_wire_box(found.box), detector, found) for found in detect(picture)]
    else:
        boxes = [(one.bbox, one.algorithm, _cut_out(picture, one.bbox)) for one in existing if one.bbox is not None]
    seconds = time.perf_counter() - started
    return [
        _detection(image_id, box, algorithm, seconds, _classifications(picture, found))
        for box, algorithm, found in boxes
    ]


def _constant(image_id: str, picture: Picture, existing: Sequence[DetectionRequest] | None) -> list[DetectionResponse]:
    classification = ClassificationResponse(
        classification="Moth",
        labels=["Moth"],
        scores=[0.9],
        algorithm=catalogue.reference(catalogue.CONSTANT_CLASSIFIER),
        timestamp=_now(),
    )
    boxes = [(_constant_box(picture), catalogue.reference(catalogue.CONSTANT_DETECTOR))]
    if existing is not None:
        boxes = [(one.bbox, one.algorithm) for one in existing if one.bbox is not None]
    return [_detection(image_id, box, algorithm, 0.0, [classification]) for box, algorithm in boxes]


def _constant_box(picture: Picture) -> BoundingBox:
    """Return the fixed box, or the whole picture if it is smaller."""
    x1, y1, x2, y2 = CONSTANT_BOX
    if x2 > picture.width or y2 > picture.height:
        return BoundingBox(x1=0, y1=0, x2=picture.width, y2=picture.height)
    return BoundingBox(x1=x1, y1=y1, x2=x2, y2=y2)


def _classifications(picture: Picture, found: Insect) -> list[ClassificationResponse]:
    started = time.perf_counter()
    features = features_of(picture, found)
    answers = [
        (is_moth(features), catalogue.MOTH_BINARY, False),
        (species_of(features), catalogue.SIZE_COLOUR_SPECIES, True),
    ]
    seconds = time.perf_counter() - started
    return [_classification(*answer, seconds) for answer in answers]


def _classification(
    classification: Classification, algorithm: AlgorithmConfigResponse, terminal: bool, seconds: float
) -> ClassificationResponse:
    return ClassificationResponse(
        classification=classification.label,
        labels=list(classification.labels),
        scores=classification.scores,
        logits=classification.logits,
        inference_time=seconds,
        algorithm=catalogue.reference(algorithm),
        terminal=terminal,
        timestamp=_now(),
    )


def _detection(
    image_id: str,
    box: BoundingBox,
    algorithm: AlgorithmReference,
    seconds: float,
    classifications: list[ClassificationResponse],
) -> DetectionResponse:
    return DetectionResponse(
        source_image_id=image_id,
        bbox=box,
        inference_time=seconds,
        algorithm=algorithm,
        timestamp=_now(),
        classifications=classifications,
    )


def _cut_out(picture: Picture, box: BoundingBox) -> Insect:
    """Return an existing box as an insect; `PipelineError` if it contains no pixel of the picture."""
    height, width = picture.pixels.shape[:2]
    across, down = width / picture.width, height / picture.height
    x1, x2 = max(0, math.floor(box.x1 * across)), min(width, math.ceil(box.x2 * across))
    y1, y2 = max(0, math.floor(box.y1 * down)), min(height, math.ceil(box.y2 * down))
    if x1 >= x2 or y1 >= y2:
        raise PipelineError(f"detections.bbox: {box} lies outside the picture of {picture.width} x {picture.height}")
    where = (slice(y1, y2), slice(x1, x2))
    crop = picture.pixels[where]
    cloth = np.percentile(picture.pixels[::4, ::4].reshape(-1, 3), 75, axis=0)
    mask = np.abs(crop - cloth).max(axis=2) > 0.2 * cloth.max()
    if not mask.any():
        mask = np.ones(crop.shape[:2], dtype=np.bool_)
    return Insect((box.x1, box.y1, box.x2, box.y2), mask, where)


def _wire_box(box: tuple[float, float, float, float]) -> BoundingBox:
    return BoundingBox(x1=box[0], y1=box[1], x2=box[2], y2=box[3])


def _now() -> datetime:
    return datetime.now(UTC)
