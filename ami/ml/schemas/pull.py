"""The requests of pull workers: log in, find jobs, take tasks, post results."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ami.ml.schemas.results import PipelineTaskResult
from ami.ml.schemas.types import (
    MAX_BATCH,
    Config,
    Key,
    PictureUrl,
    ProcessingServiceClientInfo,
    Subject,
    Text,
    WireModel,
)


class PipelineProcessingTask(WireModel):
    """One capture handed to a pull worker, which returns `reply_subject` with its result.

    `config` is the pipeline's configuration in the job's project, with ANTENNA_TASK_CONFIG.
    """

    id: Key
    image_id: Key
    image_url: PictureUrl
    reply_subject: Subject | None = None
    config: Config | None = None


class AuthTokenResponse(WireModel):
    """Answer of `POST auth/token/login/`: 40 hexadecimal digits, left out of `repr`."""

    auth_token: Annotated[str, Field(min_length=1, max_length=255, repr=False)]


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
