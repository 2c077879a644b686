"""Jobs and the state of their queue, as immutable values; every change returns a new state."""

import base64
import binascii
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from heapq import nsmallest
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
)

from ami.jqueue.domain.errors import JobNotFoundError


def _from_base64(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        # Both alphabets are about: the one of RFC 4648 section 4, and the one for URLs.
        return base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def _to_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Payload = Annotated[bytes, BeforeValidator(_from_base64), PlainSerializer(_to_base64)]
Moment = Annotated[datetime, AfterValidator(_in_utc), PlainSerializer(datetime.isoformat, when_used="json-unless-none")]


class JobStatus(StrEnum):
    """Where a job stands; a dead one was buried and is not delivered any more."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    DEAD = "dead"


class Job(BaseModel):
    """One job, as it was when it was read.

    ``id`` is a new UUID by default. ``payload`` is any bytes; a string is taken for their base64, and ``model_dump``
    gives it. The lower priority is first. Moments are in UTC, and so is one without a zone. ``heartbeat_at`` is the
    last heartbeat while it is worked on, else None. ``redelivered`` says that an earlier delivery may have run; only
    storages with a journal know it, and it is not part of the wire format.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(default_factory=lambda: str(uuid.uuid4()))
    entrypoint: str
    payload: Payload
    status: JobStatus = JobStatus.QUEUED
    priority: int = 0
    created_at: Moment = Field(default_factory=lambda: datetime.now(UTC))
    heartbeat_at: Moment | None = None
    redelivered: bool = Field(default=False, exclude=True)

    @classmethod
    def new(cls, entrypoint: str, payload: bytes, priority: int = 0) -> Self:
        """Return a queued job with a new id, created now."""
        return cls(entrypoint=entrypoint, payload=payload, priority=priority)

    def with_status(self, status: JobStatus) -> Self:
        """Return a copy with this status."""
        return self.model_copy(update={"status": status})

    def with_heartbeat(self, ts: datetime | None) -> Self:
        """Return a copy whose last heartbeat was at ``ts``; None removes it."""
        return self.model_copy(update={"heartbeat_at": ts})

    def claimed(self, moment: datetime) -> Self:
        """Return a copy that is in progress since ``moment``."""
        return self.with_status(JobStatus.IN_PROGRESS).with_heartbeat(moment)

    def requeued(self) -> Self:
        """Return a copy that waits again."""
        return self.with_status(JobStatus.QUEUED).with_heartbeat(None)


class QueueState(BaseModel):
    """All jobs of a queue in the order of their arrival, and a version that grows with every write."""

    model_config = ConfigDict(frozen=True)

    jobs: tuple[Job, ...] = ()
    version: int = 0

    # What may be asked.

    def queued_jobs(self, entrypoint: str | None = None) -> tuple[Job, ...]:
        """Return what waits, the next one first; ``entrypoint`` None is any."""
        return tuple(sorted(self._waiting(entrypoint), key=_turn))

    def next_jobs(self, count: int, entrypoint: str | None = None) -> list[Job]:
        """Return the first ``count`` of what waits."""
        return nsmallest(count, self._waiting(entrypoint), key=_turn)

    def in_progress_jobs(self) -> tuple[Job, ...]:
        """Return the jobs that are worked on."""
        return tuple(job for job in self.jobs if job.status is JobStatus.IN_PROGRESS)

    def find(self, job_id: str) -> Job | None:
        """Return the job of this id, None where it is not in the queue."""
        return next((job for job in self.jobs if job.id == job_id), None)

    def get(self, job_id: str) -> Job:
        """Return the job of this id. Raises JobNotFoundError."""
        job = self.find(job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        return job

    # What may be done to it.

    def with_job_added(self, job: Job) -> "QueueState":
        """Return it with one more job."""
        return QueueState(jobs=(*self.jobs, job), version=self.version + 1)

    def with_job_replaced(self, updated: Job) -> "QueueState":
        """Return it with this job in the place of the one of the same id. Raises JobNotFoundError."""
        self.get(updated.id)
        return self.with_jobs_replaced([updated])

    def with_jobs_replaced(self, jobs: Iterable[Job]) -> "QueueState":
        """Return it with these in the places of the jobs of the same ids."""
        replaced = {job.id: job for job in jobs}
        return QueueState(jobs=tuple(replaced.get(job.id, job) for job in self.jobs), version=self.version + 1)

    def with_job_removed(self, job_id: str) -> "QueueState":
        """Return it without this job. Raises JobNotFoundError."""
        removed = self.get(job_id)
        return QueueState(jobs=tuple(job for job in self.jobs if job is not removed), version=self.version + 1)

    def requeue_stale(self, cutoff: datetime) -> "QueueState":
        """Return it with what gave no sign of life since ``cutoff`` waiting again; where there is none, itself."""
        stale = [job for job in self.in_progress_jobs() if job.heartbeat_at is None or job.heartbeat_at <= cutoff]
        return self.with_jobs_replaced(job.requeued() for job in stale) if stale else self

    def _waiting(self, entrypoint: str | None) -> Iterable[Job]:
        waiting = (job for job in self.jobs if job.status is JobStatus.QUEUED)
        return waiting if entrypoint is None else (job for job in waiting if job.entrypoint == entrypoint)


def _turn(job: Job) -> tuple[int, datetime]:
    return job.priority, job.created_at
