"""A queue that writes once per call: the simplest one, for few calls a second."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from ami.jqueue.core.keyed import KeyedQueue, journal_of
from ami.jqueue.core.operations import Operations, checked_integer, checked_timeout
from ami.jqueue.core.whole_state import WholeState
from ami.jqueue.domain.models import QueueState
from ami.jqueue.ports.storage import ObjectStoragePort
from ami.transports.objectstore.queue.commands import Claim, Command, Rescue, Return

MAX_RETRIES = 10


class DirectQueue(Operations):
    """A queue without a lifecycle: each call is one write, from any event loop.

    What it claims has no lease: a job whose worker died waits for `requeue_stale`. In one blob a write that conflicts
    is tried again up to ``max_retries`` times, 10 ms later, then 20 ms, and so on; a journal needs none of that.
    """

    def __init__(self, storage: ObjectStoragePort, max_retries: int = MAX_RETRIES) -> None:
        super().__init__()
        checked_integer("max_retries", max_retries, 0)
        journal_of(storage)
        self.storage = storage
        self.max_retries = max_retries
        self._off_loop: _OffLoop | None = None

    async def read_state(self) -> QueueState:
        """Return the queue as it is now, without changing or locking anything. Raises StorageError."""
        return await self._committing().read_state()

    async def requeue_stale(self, timeout: timedelta) -> int:
        """Requeue every job without a heartbeat for ``timeout``; return how many there were.

        0 requeues every job in progress, and so does less.
        """
        seconds = checked_timeout("timeout", timeout).total_seconds()
        count: int = await self._submit(Rescue(max(seconds, 0.0)))
        return count

    async def _submit(self, command: Command) -> Any:
        [answer] = await self._committing().commit([command])
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _committing(self) -> "WholeState | _OffLoop":
        """Return what commits now; `read` or `write` of the storage may have been replaced since the last call."""
        journal = journal_of(self.storage)
        if journal is None:
            return WholeState(self.storage, retries=self.max_retries, pause_seconds=_pause_seconds)
        if self._off_loop is None or self._off_loop.storage is not journal.storage:
            self._off_loop = _OffLoop(journal)
        return self._off_loop


def _pause_seconds(attempt: int) -> float:
    return 0.01 * (attempt + 1)


class _OffLoop:
    """Commits to a journal on a thread, one commit after the other; on the loop itself where that is shorter."""

    def __init__(self, journal: KeyedQueue) -> None:
        self.read_state = journal.read_state
        self.storage = journal.storage
        self._journal = journal
        self._pid = 0
        self._executor: ThreadPoolExecutor | None = None

    async def commit(self, commands: Sequence[Command]) -> list[Any]:
        if self._journal.is_inline:
            # A caller that never waits would keep every other task of the loop from running.
            await asyncio.sleep(0)
            return self._journal.commit(commands)
        running = self._thread().submit(self._journal.commit, commands)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if any(isinstance(command, Claim) for command in commands):
                running.add_done_callback(self._return_claimed)
            raise

    def _thread(self) -> ThreadPoolExecutor:
        """Return the executor of one thread, which ends with the queue; a forked child has none of its parent's."""
        if self._executor is None or self._pid != os.getpid():
            self._executor, self._pid = ThreadPoolExecutor(1, "objectstore-direct"), os.getpid()
        return self._executor

    def _return_claimed(self, running: "Future[list[Any]]") -> None:
        """Return what was claimed for a caller that was cancelled; otherwise it would have to become stale."""
        if not running.cancelled() and running.exception() is None:
            commands = [Return(job.id, counted=False) for jobs in running.result() for job in jobs]
            if commands:
                self._journal.commit(commands)
