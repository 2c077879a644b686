"""The JSON that Antenna and its processing services exchange, as bounded pydantic models.

The names and fields are the platform's public wire contract (push mode v1, pull mode v2). Keys that a model does not
know are ignored, because real clients send more. Clients are written against pydantic 1, so a number where a text
belongs becomes a text, and lists and objects that it fills in may be missing. A time without a zone stays without one:
it is the station's local time, and the zone is attached when it is saved.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

MAX_BATCH = 1000
"""Maximum number of tasks handed out in one request; a client that asks for more gets the others in the next one."""

MOST_LONG_ENTRIES = 100_000
"""Maximum length of a list with one entry per class; 29,176 were seen."""

MAX_PIXELS = 10_000_000.0
EARLIEST_YEAR, LATEST_YEAR = 1900, 2200


def _finite(value: Any) -> Any:
    """Refuse NaN and infinity anywhere in an open value: they are not JSON, and no database stores them."""
    level = [value]
    while level:
        if any(isinstance(part, float) and not math.isfinite(part) for part in level):
            raise ValueError("must not hold NaN or an infinite number")
        parts = (part.values() if isinstance(part, dict) else part for part in level if isinstance(part, (dict, list)))
        level = [inner for part in parts for inner in part]
    return value


def _in_range(moment: datetime) -> datetime:
    """Refuse a time outside the years of cameras, or too near the limits to attach a station's zone."""
    if not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
        raise ValueError(f"must be of the years {EARLIEST_YEAR} to {LATEST_YEAR}")
    return moment


def _restore(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Replace a placeholder by the list that was cut out of the text (`ami.ml.services.long_lists`)."""
    return handler(value) if info.context is None else info.context.restore(value, handler)


def _not_null(empty: type[Any]) -> BeforeValidator:
    """Read null as an empty value."""
    return BeforeValidator(lambda value: empty() if value is None else value)


Finite = AfterValidator(_finite)
MayBeLong = WrapValidator(_restore)
LongLists: TypeAlias = dict[tuple[str | int, ...], Literal["numbers", "texts", "objects"]]
"""Path of each long flat list in a text -> its kind; paths are keys, with 0 for every index."""
Moment: TypeAlias = Annotated[datetime, AfterValidator(_in_range)]
Pixels: TypeAlias = Annotated[float, Field(ge=-MAX_PIXELS, le=MAX_PIXELS)]
Version: TypeAlias = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Name: TypeAlias = Annotated[str, Field(max_length=255)]
Key: TypeAlias = Annotated[str, Field(min_length=1, max_length=255)]
Url: TypeAlias = Annotated[str, Field(max_length=8192)]
Text: TypeAlias = Annotated[str, Field(max_length=100_000)]
Subject: TypeAlias = Annotated[str, Field(max_length=1024, pattern=r"^[!-~]*$"), _not_null(str)]
"""A reply subject; empty if the client knows none."""
Labels: TypeAlias = Annotated[list[Name], Field(max_length=MOST_LONG_ENTRIES), MayBeLong]
Numbers: TypeAlias = Annotated[list[float], Field(max_length=MOST_LONG_ENTRIES), MayBeLong]
Config: TypeAlias = Annotated[dict[str, Any], Field(max_length=256), Finite]
ProcessingServiceClientInfo: TypeAlias = Annotated[dict[str, Any], Field(max_length=64), Finite, _not_null(dict)]
"""An open object with which a client describes itself (hostname, version, ...); not interpreted."""


class WireModel(BaseModel):
    """Base of all wire models: ignores unknown keys, refuses NaN and infinity, instances are immutable."""

    model_config = ConfigDict(
        extra="ignore", allow_inf_nan=False, frozen=True, protected_namespaces=(), coerce_numbers_to_str=True
    )
    long_lists: ClassVar[LongLists] = {}
    """Long flat lists that a text of this model may hold."""


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
    url: Url


class SourceImageResponse(WireModel):
    """One capture that was processed."""

    id: Key
    url: Url


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


class PipelineProcessingTask(WireModel):
    """One capture handed to a pull worker, which returns `reply_subject` with its result.

    `config` is the pipeline's configuration in the job's project, with ANTENNA_TASK_CONFIG.
    """

    id: Key
    image_id: Key
    image_url: Url
    reply_subject: Subject | None = None
    config: Config | None = None


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
_CATEGORY_MAP = ("pipelines", 0, "algorithms", 0, "category_map")


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


class AlgorithmCategoryMapResponse(WireModel):
    """The classes of a classifier: `labels[i]` is the label of the `data` entry whose index is i."""

    data: Annotated[list[dict[str, Any]], Finite, Field(max_length=MOST_LONG_ENTRIES), MayBeLong] = Field(
        default_factory=list
    )
    labels: Labels = Field(default_factory=list)
    version: Name | None = None
    description: Text | None = None
    uri: Url | None = None


class AlgorithmConfigResponse(WireModel):
    """One algorithm as a service describes it; a classifier needs its category map to be registered."""

    name: Name
    key: Key
    description: Text | None = None
    task_type: Name | None = None
    version: Version = 1
    version_name: Name | None = None
    uri: Url | None = None
    category_map: AlgorithmCategoryMapResponse | None = None


class PipelineStage(WireModel):
    """One step of a pipeline, for people to read."""

    key: Key
    name: Name
    params: Annotated[list[dict[str, Any]], Finite] = Field(default_factory=list, max_length=256)
    description: Text | None = None


class PipelineConfigResponse(WireModel):
    """One pipeline as a service describes it."""

    name: Name
    slug: Key
    version: Version
    description: Text | None = None
    algorithms: list[AlgorithmConfigResponse] = Field(default_factory=list, max_length=100)
    stages: list[PipelineStage] = Field(default_factory=list, max_length=100)


class ProcessingServiceInfoResponse(WireModel):
    """Answer of `GET {endpoint}/info`."""

    name: Name
    description: Text | None = None
    pipelines: list[PipelineConfigResponse] = Field(default_factory=list, max_length=1000)
    algorithms: list[AlgorithmConfigResponse] = Field(default_factory=list, max_length=1000)


class ProcessingServiceStatusResponse(WireModel):
    """The outcome of a probe, returned to the user interface; `latency` in seconds.

    `state` is "online", "starting" (it may yet answer), "offline" or "unknown".
    """

    timestamp: datetime
    request_successful: bool
    pipeline_configs: list[PipelineConfigResponse] = Field(default_factory=list, max_length=1000)
    error: Text | None = None
    server_live: bool | None = None
    pipelines_online: list[Key] = Field(default_factory=list, max_length=1000)
    endpoint_url: Url | None = None
    latency: float
    state: str | None = None


class AuthTokenResponse(WireModel):
    """Answer of `POST auth/token/login/`: 40 hexadecimal digits, left out of `repr`."""

    auth_token: Annotated[str, Field(min_length=1, max_length=255, repr=False)]


class AsyncPipelineRegistrationRequest(WireModel):
    """Body of `POST projects/{id}/pipelines/`: the pipelines that a pull worker runs."""

    long_lists: ClassVar[LongLists] = {(*_CATEGORY_MAP, "data"): "objects", (*_CATEGORY_MAP, "labels"): "texts"}
    processing_service_name: Key
    pipelines: list[PipelineConfigResponse] = Field(default_factory=list, max_length=1000)


class PipelineRegistrationResponse(WireModel):
    """Answer (201) of `POST projects/{id}/pipelines/`, with slugs of new pipelines and keys of new algorithms."""

    timestamp: datetime
    success: bool
    pipelines: list[PipelineConfigResponse] = Field(default_factory=list)
    pipelines_created: list[str] = Field(default_factory=list)
    algorithms_created: list[str] = Field(default_factory=list)
    error: Text | None = None


class JobReference(WireModel):
    """A job that has work, as `GET jobs/?ids_only=1` lists it."""

    id: int
    pipeline_slug: Key | None = None


class JobReferencesResponse(WireModel):
    """Answer of `GET jobs/?ids_only=1&incomplete_only=1&pipeline__slug__in=a,b`."""

    count: int = Field(ge=0)
    results: list[JobReference]


class TasksRequest(WireModel):
    """Body of `POST jobs/{id}/tasks/`."""

    batch_size: int = Field(ge=1)
    client_info: ProcessingServiceClientInfo = Field(default_factory=dict)


class TasksResponse(WireModel):
    """Answer of `POST jobs/{id}/tasks/`; empty if the job is not active or no image is waiting."""

    tasks: list[PipelineProcessingTask] = Field(max_length=MAX_BATCH)


class ResultRequest(WireModel):
    """Body of `POST jobs/{id}/result/`; a bare list is refused."""

    results: list[PipelineTaskResult]
    client_info: ProcessingServiceClientInfo = Field(default_factory=dict)


class TakenResult(WireModel):
    """What became of one result: the task that will save it, or why it is refused.

    The image whose delivery a refused result names is failed by the task `task_id`; without one the task is empty.
    """

    reply_subject: Subject
    status: Literal["queued", "refused"] = "queued"
    task_id: str = ""
    reason: Text | None = None


class ResultAcceptedResponse(WireModel):
    """Answer of `POST jobs/{id}/result/`, one entry of `tasks` per result in the same order."""

    status: Literal["accepted"] = "accepted"
    job_id: int
    results_queued: int = Field(ge=0)
    tasks: list[TakenResult]
