"""Asks JetStream about many jobs at once, instead of waiting for one answer after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

#: So many questions are open at once: their answers stay far below a connection's buffers.
AT_ONCE = 100


async def ask_for_each(job_ids: Iterable[int], ask: Callable[[int], Awaitable[T]]) -> dict[int, T]:
    """Return the answer for each job. An error of one is raised when all have ended."""
    bound = asyncio.Semaphore(AT_ONCE)
    ids = list(job_ids)

    async def bounded(job_id: int) -> T:
        async with bound:
            return await ask(job_id)

    answers = await asyncio.gather(*map(bounded, ids), return_exceptions=True)
    found: dict[int, T] = {}
    for job_id, answer in zip(ids, answers, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        found[job_id] = answer
    return found
