"""A queue whose concurrent callers share their writes."""

import asyncio
import random
from datetime import timedelta
from typing import Any

from ami.jqueue.core.keyed import KeyedQueue, journal_of
from ami.jqueue.core.operations import Operations, checked_timeout
from ami.jqueue.core.whole_state import WholeState
from ami.jqueue.core.writers import InlineWriter, TaskWriter, ThreadWriter, Writer
from ami.jqueue.domain.errors import JQueueError
from ami.jqueue.domain.models import QueueState
from ami.jqueue.ports.storage import ObjectStoragePort
from ami.transports.objectstore.queue.commands import Command

RETRIES = 20
STALE_TIMEOUT = timedelta(minutes=5)


class GroupCommitLoop(Operations):
    """A queue between `start` and `stop`: what is called while a write is under way goes into the next one.

    A call that fails, such as the ack of a removed job, fails alone. A job without a heartbeat for ``stale_timeout``
    is delivered again. Stale jobs are found with the next write: in one blob by the writer's timeout, in a journal by
    the lease of the claim.
    """

    def __init__(self, storage: ObjectStoragePort, stale_timeout: timedelta = STALE_TIMEOUT) -> None:
        super().__init__(lease_seconds=checked_timeout("stale_timeout", stale_timeout).total_seconds())
        journal = journal_of(storage)
        self._committing: WholeState | KeyedQueue = journal or WholeState(
            storage, retries=RETRIES, pause_seconds=_pause_seconds, stale_timeout=stale_timeout
        )
        self._writer: Writer | None = None

    async def start(self) -> None:
        """Begin to take calls, on this event loop. Raises JQueueError where it has begun already."""
        if self._writer is not None:
            raise JQueueError(f"this {type(self).__name__} runs already; give every 'async with' one of its own")
        if isinstance(self._committing, WholeState):
            self._writer = TaskWriter(self._committing.commit)
        elif self._committing.is_inline:
            self._writer = InlineWriter(self._committing.commit)
        else:
            self._writer = ThreadWriter(self._committing.commit)

    async def stop(self) -> None:
        """Take no more calls, and return when all that were made are answered."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.stop()

    async def read_state(self) -> QueueState:
        """Return the queue as it is now, beside the writes, started or not. Raises StorageError."""
        return await self._committing.read_state()

    def _submit(self, command: Command) -> "asyncio.Future[Any]":
        if self._writer is None:
            raise JQueueError(f"this {type(self).__name__} is not running: use it inside 'async with'")
        return self._writer.submit(command)


def _pause_seconds(attempt: int) -> float:
    """Return 5 ms, doubling up to 320 ms, and at random down to half of that, so that writers do not collide again."""
    return 0.005 * 2.0 ** min(attempt, 6) * random.uniform(0.5, 1)  # noqa: S311
