"""Writers commit the commands of many callers in batches: in a task, in a thread, or on the event loop itself."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ami.jqueue.domain.errors import JQueueError
from ami.transports.objectstore.queue.commands import Claim, Command, Enqueue, Return

#: What bounds a batch: so many commands, or the one that takes it over so many bytes of payloads.
BATCH_COMMANDS = 1_000
BATCH_BYTES = 4 * 1024**2

Submitted = tuple[Command, "asyncio.Future[Any]"]
Outcome = list[Any] | BaseException


class Writer(ABC):
    """Takes commands on one event loop, commits those that came together in one batch, and answers each caller."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: deque[Submitted] = deque()

    def submit(self, command: Command) -> "asyncio.Future[Any]":
        """Return the future of the command's answer."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pending.append((command, future))
        self._wake_up()
        return future

    @abstractmethod
    def _wake_up(self) -> None:
        """Have it committed soon, with all that is pending by then."""

    @abstractmethod
    async def stop(self) -> None:
        """Return when everything that was submitted has been answered. Nothing may be submitted from here on."""

    def _take(self) -> list[Submitted]:
        """Return the next batch, without the commands whose callers were cancelled."""
        batch: list[Submitted] = []
        size = 0
        while self._pending and len(batch) < BATCH_COMMANDS and size < BATCH_BYTES:
            submitted = self._pending.popleft()
            command, future = submitted
            if future.done():
                continue
            batch.append(submitted)
            if isinstance(command, Enqueue):
                size += len(command.payload)
        return batch

    def _settle(self, batch: Sequence[Submitted], outcome: Outcome) -> None:
        """Answer the callers; only on the loop."""
        if isinstance(outcome, BaseException):
            for _, future in batch:
                if not future.done():
                    future.set_exception(outcome)
            return
        for (command, future), answer in zip(batch, outcome, strict=True):
            if future.done():
                self._return_claimed(command, answer)
            elif isinstance(answer, JQueueError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _return_claimed(self, command: Command, answer: Any) -> None:
        """Return the jobs of a caller that was cancelled meanwhile; otherwise they would have to become stale."""
        if isinstance(command, Claim):
            for job in answer:
                self.submit(Return(job.id, counted=False)).add_done_callback(_ignore_error)


def _ignore_error(future: "asyncio.Future[Any]") -> None:
    """Retrieve an error that is not awaited, so that asyncio does not warn about it."""
    if not future.cancelled():
        future.exception()


class InlineWriter(Writer):
    """Commits on the loop itself, once per turn: for a store whose commit is shorter than waking a thread."""

    def __init__(self, commit: Callable[[Sequence[Command]], list[Any]]) -> None:
        super().__init__()
        self._commit = commit
        self._is_awake = False

    def _wake_up(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_awake = False
        if batch := self._take():
            self._settle(batch, _outcome(self._commit, batch))
        if self._pending:
            self._wake_up()

    async def stop(self) -> None:
        while self._pending:
            await asyncio.sleep(0)
        # Callers that were answered in this turn hear of it in the next one.
        await asyncio.sleep(0)


class ThreadWriter(Writer):
    """Commits on a thread of its own, and crosses back to the loop once per batch.

    While a batch is written, the loop's callers make the next one.
    """

    def __init__(self, commit: Callable[[Sequence[Command]], list[Any]]) -> None:
        super().__init__()
        self._commit = commit
        self._wake = threading.Event()
        self._is_stopping = False
        self._ended = self._loop.create_future()
        # A daemon: a queue that was never left must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="objectstore-writer", daemon=True)
        self._thread.start()

    def _wake_up(self) -> None:
        if not self._wake.is_set():
            self._wake.set()

    async def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()
        await asyncio.shield(self._ended)
        # Jobs of cancelled callers are returned after the thread has ended.
        if batch := self._take():
            self._settle(batch, await asyncio.to_thread(_outcome, self._commit, batch))

    def _run(self) -> None:
        try:
            while not self._is_stopping or self._pending:
                self._wake.wait()
                # Cleared before taking: a later submit sets it again.
                self._wake.clear()
                while batch := self._take():
                    self._loop.call_soon_threadsafe(self._settle, batch, _outcome(self._commit, batch))
            self._loop.call_soon_threadsafe(self._ended.set_result, None)
        except RuntimeError:
            # The loop was closed with the queue still open: no caller is left.
            return


class TaskWriter(Writer):
    """Commits in a task of the loop: for a storage that is asynchronous itself."""

    def __init__(self, commit: Callable[[Sequence[Command]], Awaitable[list[Any]]]) -> None:
        super().__init__()
        self._commit = commit
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._task = self._loop.create_task(self._run(), name="objectstore-writer")

    def _wake_up(self) -> None:
        if self._task.done():
            raise JQueueError("the queue's task was cancelled: nothing can be written any more")
        self._wake.set()

    async def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while not self._is_stopping or self._pending:
            await self._wake.wait()
            self._wake.clear()
            while batch := self._take():
                try:
                    outcome: Outcome = await self._commit([command for command, _ in batch])
                except asyncio.CancelledError:
                    for _, future in (*batch, *self._pending):
                        future.cancel()
                    raise
                except Exception as error:
                    outcome = error
                self._settle(batch, outcome)


def _outcome(commit: Callable[[Sequence[Command]], list[Any]], batch: Sequence[Submitted]) -> Outcome:
    try:
        return commit([command for command, _ in batch])
    except Exception as error:
        return error
