"""Sends heartbeats to a queue while a job is worked on."""

import asyncio
import logging
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self

from ami.jqueue.core.operations import checked_timeout
from ami.jqueue.domain.errors import JQueueError

log = logging.getLogger(__name__)


class Beating(Protocol):
    """Anything that takes heartbeats: every queue here, or a test's double."""

    async def heartbeat(self, job_id: str) -> None:
        """Record that the job is still worked on."""


class HeartbeatManager:
    """Calls ``queue.heartbeat(job_id)`` every ``interval`` while its ``async with`` block runs.

    It stops silently at the first `JQueueError`: the job was removed, or the storage is unreachable, and the job is
    delivered again after its timeout. Work on a job must therefore bear being done twice. Any other error stops it,
    too, and is raised when the block ends; a block that failed itself keeps its own error, and that one is logged.
    """

    def __init__(self, queue: Beating, job_id: str, interval: timedelta = timedelta(seconds=60)) -> None:
        if checked_timeout("interval", interval) < timedelta(0):
            raise ValueError(f"interval must not be negative: {interval}")
        self.queue = queue
        self.job_id = job_id
        self.interval = interval
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._beat(), name=f"heartbeat of {self.job_id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        # Awaiting the task itself would mix up its cancellation with our own.
        await asyncio.wait((task,))
        if task.cancelled() or (failed := task.exception()) is None:
            return
        if error is None:
            raise failed
        log.warning("Heartbeat ended early for job %s", self.job_id, exc_info=failed, extra={"job": self.job_id})

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.interval.total_seconds())
            try:
                await self.queue.heartbeat(self.job_id)
            except JQueueError:
                return
