"""The queue to use where many coroutines share it: group commit, for the length of an ``async with``."""

from types import TracebackType
from typing import Self

from ami.jqueue.core.group_commit import GroupCommitLoop


class BrokerQueue(GroupCommitLoop):
    """A `GroupCommitLoop` as an async context manager: started on entering, drained on leaving."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
