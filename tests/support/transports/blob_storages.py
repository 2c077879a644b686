"""One-blob storages as a user would write them, one whose storage fails on demand, and a way to wait."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from ami.jqueue import CASConflictError, StorageError


class OneBlob:
    """The least that satisfies the port."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = content
        self.version = 0

    async def read(self) -> tuple[bytes, str | None]:
        await asyncio.sleep(0)
        return self.content, str(self.version) if self.content else None

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        if if_match != (await self.read())[1]:
            raise CASConflictError("another writer was first")
        self.content = content
        self.version += 1
        return str(self.version)


class FaultyBlob(OneBlob):
    """Each write takes the next fault: a conflict, a lost request or answer, or an echo.

    An echo is a client that sends again by itself after a lost answer: what refuses it is its own first write.
    """

    def __init__(self, faults: Iterable[str] = ()) -> None:
        super().__init__()
        self.faults = iter(faults)
        self.tries = 0

    async def write(self, content: bytes, if_match: str | None = None) -> str:
        self.tries += 1
        match next(self.faults, ""):
            case "conflict":
                raise CASConflictError("injected")
            case "lost request":
                raise StorageError("injected", OSError("no route"))
            case "lost answer":
                await super().write(content, if_match)
                raise StorageError("injected", TimeoutError())
            case "echo":
                await super().write(content, if_match)
                raise CASConflictError("injected")
        return await super().write(content, if_match)


async def until(holds: Callable[[], Awaitable[object]], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.005)
