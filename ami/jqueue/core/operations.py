"""What every queue offers, as commands that it submits in its own way; wrong arguments are refused here."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from ami.jqueue.domain.models import Job, QueueState
from ami.transports.objectstore.queue.commands import Ack, Claim, Command, Enqueue, Renew, Return

#: What every reader of a number can hold.
LARGEST = 2**63 - 1


class Operations(ABC):
    """The calls on a queue. All of them may raise `StorageError`, and `CASConflictError` when retries did not help."""

    def __init__(self) -> None:
        self._owner = uuid.uuid4().hex

    @property
    def _lease_seconds(self) -> float | None:
        """How long a claim is kept without a heartbeat in a journal; None is until `requeue_stale`."""
        return None

    @abstractmethod
    def _submit(self, command: Command) -> Awaitable[Any]:
        """Return what resolves to the command's answer, or raises its error."""

    @abstractmethod
    async def read_state(self) -> QueueState:
        """Return the queue as it is now, without changing or locking anything."""

    async def enqueue(self, entrypoint: str, payload: bytes, priority: int = 0) -> Job:
        """Add a job for ``entrypoint``; of two priorities the lower one is first. It is stored when this returns."""
        _checked_text("entrypoint", entrypoint)
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise TypeError(f"payload must be bytes, not {type(payload).__name__}")
        checked_integer("priority", priority, -LARGEST)
        # The id is fixed before the first try: whatever is tried again finds its own job.
        command = Enqueue(str(uuid.uuid4()), bytes(payload), entrypoint, priority, created=time.time())
        job: Job = await self._submit(command)
        return job

    async def dequeue(self, entrypoint: str | None = None, *, batch_size: int = 1) -> list[Job]:
        """Claim up to ``batch_size`` jobs by (priority, arrival), ``[]`` if none waits; ``entrypoint`` None is any."""
        if entrypoint is not None:
            _checked_text("entrypoint", entrypoint)
        checked_integer("batch_size", batch_size, 1)
        jobs: list[Job] = await self._submit(Claim(batch_size, self._owner, self._lease_seconds, entrypoint))
        return jobs

    async def ack(self, job_id: str) -> None:
        """Remove a finished job. Raises JobNotFoundError, which is harmless: it was removed before."""
        await self._submit(Ack(_checked_text("job_id", job_id)))

    async def nack(self, job_id: str) -> None:
        """Give a job back to its old place in the queue. Raises JobNotFoundError."""
        await self._submit(Return(_checked_text("job_id", job_id)))

    async def heartbeat(self, job_id: str) -> None:
        """Record that a job is still worked on. Raises JobNotFoundError."""
        await self._submit(Renew(_checked_text("job_id", job_id), None, self._lease_seconds))


def checked_timeout(name: str, value: timedelta) -> timedelta:
    """Return ``value``. Raises TypeError, naming it, where it is not a length of time; a negative one is."""
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} must be a timedelta, not {type(value).__name__}")
    return value


def _checked_text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} must not be empty")
    if not value.isascii():
        try:
            # What cannot be written would fail a whole batch, and with it other callers.
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{name} holds half a character: {value!r}") from None
    return value


def checked_integer(name: str, value: int, least: int) -> None:
    """Raise TypeError or ValueError, naming it, where ``value`` is not an integer from ``least`` to `LARGEST`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    if not least <= value <= LARGEST:
        # Without the value: Python refuses to write very long ones.
        raise ValueError(f"{name} must be {least} to {LARGEST}")
