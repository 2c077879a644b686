"""A queue whose concurrent callers share their writes."""

import asyncio
import random
from datetime import timedelta
from typing import Any

from ami.jqueue.core.keyed import is_journal, journal_of
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
    the lease of the claim. With a timeout of 0 or less every job in progress is stale.
    """

    def __init__(self, storage: ObjectStoragePort, stale_timeout: timedelta = STALE_TIMEOUT) -> None:
        super().__init__()
        journal_of(storage)
        self.storage = storage
        self.stale_timeout = checked_timeout("stale_timeout", stale_timeout)
        self._writer: Writer | None = None
        self._blob_writer: TaskWriter | None = None

    async def start(self) -> None:
        """Begin to take calls, on this event loop. Raises RuntimeError where it has begun already."""
        if self._writer is not None:
            raise RuntimeError(f"this {type(self).__name__} runs already; give every 'async with' one of its own")
        journal = journal_of(self.storage)
        if journal is None:
            self._writer = self._blob_writer = self._new_blob_writer()
        elif journal.is_inline:
            self._writer = InlineWriter(journal.commit)
        else:
            self._writer = ThreadWriter(journal.commit)

    async def stop(self) -> None:
        """Take no more calls, and return when all that were made are answered."""
        writers = {self._writer, self._blob_writer}
        self._writer = self._blob_writer = None
        for writer in writers:
            if writer is not None:
                await writer.stop()

    async def read_state(self) -> QueueState:
        """Return the queue as it is now, beside the writes, started or not. Raises StorageError."""
        journal = journal_of(self.storage)
        return await (self._whole_state() if journal is None else journal).read_state()

    @property
    def _lease_seconds(self) -> float:
        return max(self.stale_timeout.total_seconds(), 0.0)

    def _submit(self, command: Command) -> "asyncio.Future[Any]":
        if self._writer is None:
            raise JQueueError(f"this {type(self).__name__} is not running: use it inside 'async with'")
        if self._blob_writer is None and not is_journal(self.storage):
            # A test replaced its write while the queue ran.
            self._blob_writer = self._new_blob_writer()
        return (self._blob_writer or self._writer).submit(command)

    def _new_blob_writer(self) -> TaskWriter:
        return TaskWriter(self._whole_state().commit)

    def _whole_state(self) -> WholeState:
        return WholeState(self.storage, retries=RETRIES, pause_seconds=_pause_seconds, stale_timeout=self.stale_timeout)


def _pause_seconds(attempt: int) -> float:
    """Return 5 ms, doubling up to 320 ms, and at random down to half of that, so that writers do not collide again."""
    return 0.005 * 2.0 ** min(attempt, 6) * random.uniform(0.5, 1)  # noqa: S311
