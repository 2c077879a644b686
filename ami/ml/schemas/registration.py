"""What a service says about itself: its pipelines, algorithms and classes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ami.ml.schemas.types import (
    MOST_LONG_ENTRIES,
    Finite,
    Key,
    Labels,
    LongLists,
    MayBeLong,
    Name,
    Text,
    Url,
    Version,
    WireModel,
)

_CATEGORY_MAP = ("pipelines", 0, "algorithms", 0, "category_map")


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
