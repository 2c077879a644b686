"""Keeps a queue as one blob: read it, change it in memory, write it back unless another process has written."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ami.jqueue.core.codec import decode, encode
from ami.jqueue.domain.errors import CASConflictError, JobNotFoundError, StorageError
from ami.jqueue.domain.models import Job, JobStatus, QueueState
from ami.jqueue.ports.storage import ObjectStoragePort
from ami.transports.objectstore.queue.commands import Ack, Claim, Command, Enqueue, Renew, Rescue, Return


class WholeState:
    """Commits commands to the queue in one blob.

    Every commit starts from what the storage holds at that moment: nothing is kept between two of them. A conflict is
    tried again ``retries`` times after ``pause_seconds(attempt)``. With ``stale_timeout`` every commit also returns the
    jobs that gave no sign of life for so long.
    """

    def __init__(
        self,
        storage: ObjectStoragePort,
        *,
        retries: int,
        pause_seconds: Callable[[int], float],
        stale_timeout: timedelta | None = None,
    ) -> None:
        self._storage = storage
        self._retries = retries
        self._pause_seconds = pause_seconds
        self._stale_timeout = stale_timeout

    async def read_state(self) -> QueueState:
        """Return the queue as it is. Raises StorageError."""
        return decode((await self._storage.read())[0])

    async def commit(self, commands: Sequence[Command]) -> list[Any]:
        """Do the commands in one write and return their answers, in order.

        An answer is the `Job` of an `Enqueue`, a list of them for a `Claim`, the number of jobs for a `Rescue`, else
        None; or the `JobNotFoundError` of this command alone.

        Raises:
            CASConflictError: others were faster at every try; nothing was stored.
            StorageError: the storage failed; it is unknown whether the commands were stored.
        """
        arrived = datetime.now(UTC)
        for attempt in range(self._retries + 1):
            content, etag = await self._storage.read()
            before = decode(content)
            after, answers = self._apply(before, commands, arrived)
            if after is before:
                return answers
            try:
                await self._write(encode(after), etag)
                return answers
            except CASConflictError:
                if attempt == self._retries:
                    raise
            await asyncio.sleep(self._pause_seconds(attempt))
        raise AssertionError("the last try returns or raises")

    async def _write(self, content: bytes, etag: str | None) -> None:
        """Write; where the storage fails, look whether what was lost is only its answer."""
        try:
            await self._storage.write(content, if_match=etag)
        except StorageError as error:
            try:
                found, _ = await self._storage.read()
            except StorageError:
                raise error from None
            if found != content:
                raise

    def _apply(
        self, before: QueueState, commands: Sequence[Command], arrived: datetime
    ) -> tuple[QueueState, list[Any]]:
        """Return the state after all commands, with ``before``'s version plus one where anything changed at all."""
        now = datetime.now(UTC)
        state = before if self._stale_timeout is None else before.requeue_stale(now - self._stale_timeout)
        answers: list[Any] = []
        for command in commands:
            try:
                state, answer = apply(state, command, arrived, now)
            except JobNotFoundError as error:
                answer = error
            answers.append(answer)
        return (before if state is before else state.model_copy(update={"version": before.version + 1})), answers


def apply(state: QueueState, command: Command, arrived: datetime, now: datetime) -> tuple[QueueState, Any]:
    """Return the state after the command, and its answer. Raises JobNotFoundError.

    ``arrived`` is the same at every try, ``now`` is the moment of this one.
    """
    match command:
        case Enqueue():
            return _enqueue(state, command, arrived)
        case Claim():
            claimed = [job.claimed(now) for job in state.next_jobs(command.limit, command.entrypoint)]
            return (state.with_jobs_replaced(claimed) if claimed else state), claimed
        case Ack():
            return state.with_job_removed(command.id), None
        case Return() | Renew():
            job = state.get(command.id)
            if job.status is not JobStatus.IN_PROGRESS:
                return state, None
            changed = job.requeued() if isinstance(command, Return) else job.claimed(now)
            return state.with_jobs_replaced([changed]), None
        case Rescue():
            after = state.requeue_stale(now - timedelta(seconds=command.timeout_seconds))
            return after, len(state.in_progress_jobs()) - len(after.in_progress_jobs())
        case _:
            raise NotImplementedError(f"a queue in one blob knows no {type(command).__name__}")


def _enqueue(state: QueueState, command: Enqueue, arrived: datetime) -> tuple[QueueState, Job]:
    """Add the job once: a try whose conflict was an echo of its own write finds it there."""
    found = state.find(command.id)
    if found is not None:
        return state, found
    job = Job(
        id=command.id,
        entrypoint=command.entrypoint,
        payload=command.payload,
        priority=command.priority,
        created_at=arrived if command.created is None else datetime.fromtimestamp(command.created, UTC),
    )
    return state.with_job_added(job), job
