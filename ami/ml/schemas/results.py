"""Detections and classifications: what a service is asked (push), and what it answers."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, Discriminator, Field, Tag

from ami.ml.schemas.types import (
    MAX_BATCH,
    Config,
    Finite,
    Key,
    Labels,
    LongLists,
    Moment,
    Name,
    Numbers,
    PictureUrl,
    Pixels,
    Subject,
    Text,
    Url,
    WireModel,
)


class BoundingBox(WireModel):
    """A rectangle in pixels of the full-size picture; (x1, y1) should be the top left, but this is not enforced."""

    x1: Pixels
    y1: Pixels
    x2: Pixels
    y2: Pixels


class AlgorithmReference(WireModel):
    """The algorithm that made something; `key` is its identity."""

    name: Name
    key: Key


class SourceImageRequest(WireModel):
    """One capture to process: its primary key as a string, and its URL."""

    id: Key
    url: PictureUrl


class SourceImageResponse(WireModel):
    """One capture that was processed."""

    id: Key
    url: PictureUrl


class ClassificationResponse(WireModel):
    """One classification of one detection; `scores[i]` and `logits[i]` belong to `labels[i]`."""

    classification: Name
    labels: Labels | None = None
    scores: Numbers = Field(default_factory=list)
    logits: Numbers | None = None
    inference_time: float | None = None
    algorithm: AlgorithmReference
    terminal: bool = True
    timestamp: Moment


class DetectionResponse(WireModel):
    """One detection on one capture; a null `bbox` means that the detector ran and found nothing."""

    source_image_id: Key
    bbox: BoundingBox | None = None
    inference_time: float | None = None
    algorithm: AlgorithmReference
    timestamp: Moment
    crop_image_url: Url | None = None
    classifications: list[ClassificationResponse] = Field(default_factory=list, max_length=1000)


class DetectionRequest(WireModel):
    """An existing detection of Antenna; the service classifies it and does not detect again."""

    source_image: SourceImageRequest
    bbox: BoundingBox | None = None
    crop_image_url: Url | None = None
    algorithm: AlgorithmReference


class PipelineRequest(WireModel):
    """Body of `POST {endpoint}/process`; config keys that start with `request_` are not sent."""

    pipeline: Key
    source_images: list[SourceImageRequest] = Field(max_length=MAX_BATCH)
    detections: list[DetectionRequest] | None = Field(default=None, max_length=100_000)
    config: dict[str, Any] = Field(default_factory=dict, max_length=256)


class PipelineResultsResponse(WireModel):
    """Results of one pipeline for one or more captures; `total_time` in seconds, `algorithms` is deprecated.

    `config` is the configuration that a pull worker has used.
    """

    pipeline: Key
    total_time: float
    source_images: list[SourceImageResponse] = Field(max_length=MAX_BATCH)
    detections: list[DetectionResponse] = Field(max_length=100_000)
    algorithms: Annotated[dict[str, Any], Finite] = Field(default_factory=dict)
    errors: Annotated[list[Any], Field(max_length=10_000), Finite] | Text | None = None
    config: Config | None = None


class PipelineResultsError(WireModel):
    """The error for a capture that could not be processed, sent instead of results so that its message is acked."""

    error: Text
    image_id: Key | None = None


_RESULT_KEYS = frozenset(name for name, field in PipelineResultsResponse.model_fields.items() if field.is_required())


def _kind_of_result(value: Any) -> Literal["results", "error"]:
    """Distinguish results from an error by the key `error`; a body with every required key of results is results."""
    if isinstance(value, BaseModel):
        return "error" if isinstance(value, PipelineResultsError) else "results"
    if not isinstance(value, dict) or value.get("error") is None or _RESULT_KEYS.issubset(value):
        return "results"
    return "error"


TaskResult: TypeAlias = Annotated[
    Annotated[PipelineResultsResponse, Tag("results")] | Annotated[PipelineResultsError, Tag("error")],
    Discriminator(_kind_of_result),
]


_CLASSIFICATION = ("result", "detections", 0, "classifications", 0)


class PipelineTaskResult(WireModel):
    """One finished task: its reply subject, and its results or error."""

    long_lists: ClassVar[LongLists] = {
        (*_CLASSIFICATION, "scores"): "numbers",
        (*_CLASSIFICATION, "logits"): "numbers",
        (*_CLASSIFICATION, "labels"): "texts",
    }
    reply_subject: Subject = ""
    result: TaskResult


class StoredTaskResult(WireModel):
    """A stored `PipelineTaskResult`; its reply subject is an argument of the task that handles it."""

    long_lists: ClassVar[LongLists] = PipelineTaskResult.long_lists
    result: TaskResult
