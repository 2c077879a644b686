"""Pull mode: takes tasks from Antenna, processes them and posts the results, until stopped."""

from __future__ import annotations

import logging
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TypeVar

from ami.ml.schemas import (
    JobReference,
    PipelineProcessingTask,
    PipelineResultsError,
    PipelineTaskResult,
    ResultRequest,
    SourceImageRequest,
    TasksRequest,
)
from processing_service.antenna import Antenna, AntennaError
from processing_service.backoff import Backoff
from processing_service.downloads import RETRIES, NetworkError
from processing_service.images import IMAGE_ERRORS, ONE_ATTEMPT, ImageProcessor
from processing_service.logs import event

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

BATCHES_PER_POLL = 10
"""Batches per job between two polls, so that no job starves another."""

OUTAGE = Backoff(first_seconds=5.0, longest_seconds=60.0)
"""Waits after batches from which tasks were left: an image is delivered a small number of times only."""


class WorkerName:
    """What the pullers of one process call themselves; Antenna renews the claims of a name that it hears.

    A new name lets the claims of tasks that were left run out, so that these tasks are redelivered.
    """

    def __init__(self) -> None:
        self._names = count(1)
        self._name = f"{os.getpid()}-0"

    def renew(self) -> None:
        self._name = f"{os.getpid()}-{next(self._names)}"

    def client_info(self) -> dict[str, str]:
        """Return what each request says about the process."""
        return {**client_info(), "worker_id": self._name}


@dataclass(frozen=True)
class PullSettings:
    """`once`: stop after one poll; `until_idle_seconds`: stop after that time without a task."""

    slugs: Sequence[str]
    batch_size: int = 8
    poll_seconds: float = 2.0
    once: bool = False
    until_idle_seconds: float | None = None


class Puller:
    """A pull loop; several share the stop event and the name."""

    def __init__(
        self,
        antenna: Antenna,
        processor: ImageProcessor,
        settings: PullSettings,
        stop: threading.Event,
        name: WorkerName,
    ) -> None:
        self._antenna = antenna
        self._processor = processor
        self._settings = settings
        self._stop = stop
        self._name = name
        self._outages = 0

    def run(self) -> int:
        """Pull until stopped, idle or done; return the number of posted tasks. `AntennaError` for a refused token."""
        posted = 0
        last_work = time.monotonic()
        while not self._stop.is_set():
            count = self._poll()
            posted += count
            if count:
                last_work = time.monotonic()
            if self._settings.once or self._idle_too_long(last_work):
                break
            if not count:
                self._stop.wait(self._settings.poll_seconds)
        return posted

    def _idle_too_long(self, last_work: float) -> bool:
        limit = self._settings.until_idle_seconds
        return limit is not None and time.monotonic() - last_work >= limit

    def _poll(self) -> int:
        """Process all available jobs once; return the number of posted tasks."""
        jobs = self._call(lambda: self._antenna.jobs(self._settings.slugs)) or []
        return sum(self._work_on(job) for job in jobs)

    def _work_on(self, job: JobReference) -> int:
        slug = job.pipeline_slug or (self._settings.slugs[0] if len(self._settings.slugs) == 1 else None)
        if slug is None or slug not in self._settings.slugs:
            log.warning(event("job skipped", job=job.id, pipeline=slug, reason="not a pipeline of this worker"))
            return 0
        posted = 0
        for _ in range(BATCHES_PER_POLL):
            if self._stop.is_set():
                break
            body = TasksRequest(batch_size=self._settings.batch_size, client_info=self._name.client_info())
            tasks = self._call(partial(self._antenna.tasks, job.id, body))
            if not tasks:
                break
            posted += self._batch(job.id, slug, tasks, body)
        return posted

    def _batch(self, job: int, slug: str, tasks: Sequence[PipelineProcessingTask], taken: TasksRequest) -> int:
        """Process all taken tasks, also while stopping, and post their results in one body."""
        started = time.perf_counter()
        results: list[PipelineTaskResult] = []
        left = 0
        for task in tasks:
            try:
                if result := self._one(slug, task, ONE_ATTEMPT if left else RETRIES):
                    results.append(result)
            except NetworkError as error:
                left += 1
                log.warning(event("task left for redelivery", job=job, image=task.image_id, error=error))
        body = ResultRequest(results=results, client_info=taken.client_info)
        posted = bool(results) and self._call(lambda: self._post(job, body)) is not None
        if posted:
            failed = sum(isinstance(result.result, PipelineResultsError) for result in results)
            seconds = time.perf_counter() - started
            log.info(event("batch posted", job=job, pipeline=slug, images=len(results), failed=failed, seconds=seconds))
        self._wait_out(left)
        return len(results) if posted else 0

    def _wait_out(self, left: int) -> None:
        """After a batch from which tasks were left, let their claims run out, and wait before the next batch."""
        if not left:
            self._outages = 0
            return
        self._outages += 1
        self._name.renew()
        if self._settings.once:
            return
        seconds = OUTAGE.wait_seconds(self._outages, None)
        log.warning(event("waiting for the network", tasks_left=left, wait_seconds=seconds))
        self._stop.wait(seconds)

    def _post(self, job: int, body: ResultRequest) -> bool:
        self._antenna.post_results(job, body)
        return True

    def _one(self, slug: str, task: PipelineProcessingTask, retries: Backoff) -> PipelineTaskResult | None:
        """Return the task's results or its error; None if it has no reply subject.

        `NetworkError` if it must not be answered: its picture could not be fetched now.
        """
        if task.reply_subject is None:
            log.error(event("task skipped", task=task.id, reason="no reply_subject"))
            return None
        image = SourceImageRequest(id=task.image_id, url=task.image_url)
        try:
            results = self._processor.results(slug, image, retries)
            return PipelineTaskResult(reply_subject=task.reply_subject, result=results)
        except NetworkError:
            raise
        except IMAGE_ERRORS as error:
            reason = str(error)
            log.warning(event("image failed", image=task.image_id, error=reason))
        except Exception as error:  # every other message must be answered
            reason = f"{type(error).__name__} in pipeline {slug}"
            log.exception(event("image failed", image=task.image_id, error=reason))
        return PipelineTaskResult(
            reply_subject=task.reply_subject,
            result=PipelineResultsError(error=reason, image_id=task.image_id),
        )

    def _call(self, request: Callable[[], Answer]) -> Answer | None:
        """Call Antenna; log a refusal or failure and return None; raise `AntennaError` if the token is refused."""
        try:
            return request()
        except AntennaError as error:
            if error.is_passing and self._stop.is_set():
                log.info(event("stopped while antenna was unreachable", error=error))
                return None
            log.error(event("antenna refused", error=error))
            if error.is_fatal:
                raise
            return None


def client_info() -> dict[str, str]:
    """Return the host name and versions, without secrets."""
    return {
        "hostname": socket.gethostname(),
        "software": "processing_service",
        "python": platform.python_version(),
    }
