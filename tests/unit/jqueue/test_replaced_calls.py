"""A storage whose `read` or `write` was replaced is used through them, whatever it keeps otherwise."""

import asyncio

import pytest

from ami.jqueue import BrokerQueue, CASConflictError, DirectQueue, GroupCommitLoop, InMemoryStorage

KINDS = [BrokerQueue, DirectQueue, GroupCommitLoop]


class Counting(InMemoryStorage):
    """A user's own: it counts its writes."""

    def __init__(self):
        super().__init__()
        self.writes = 0

    async def write(self, content, if_match=None):
        self.writes += 1
        return await super().write(content, if_match)


class Renamed(InMemoryStorage):
    """A subclass that changes nothing of it."""


def conflicting(storage, times):
    """Return a `write` that conflicts so often before it works, and the list that counts its calls."""
    write, calls = storage.write, []

    async def flaky(content, if_match=None):
        calls.append(if_match)
        if len(calls) <= times:
            raise CASConflictError("simulated")
        return await write(content, if_match)

    return flaky, calls


async def enqueue(q, payload=b"x"):
    if isinstance(q, GroupCommitLoop):
        await q.start()
    job = await q.enqueue("t", payload)
    if isinstance(q, GroupCommitLoop):
        await q.stop()
    return job


@pytest.mark.parametrize("kind", KINDS)
def test_write_of_a_subclass_is_called(kind):
    async def main():
        storage = Counting()
        q = kind(storage)
        job = await enqueue(q)
        assert storage.writes == 1
        assert [found.id for found in (await q.read_state()).jobs] == [job.id]

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_replaced_write_is_called_and_its_conflicts_retried(kind):
    async def main():
        storage = InMemoryStorage()
        storage.write, calls = conflicting(storage, 2)
        job = await enqueue(kind(storage))
        assert calls == [None, None, None]
        assert [found.id for found in (await DirectQueue(storage).read_state()).jobs] == [job.id]

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_write_replaced_on_the_class_is_called(kind, monkeypatch):
    async def main():
        async def refuse(self, content, if_match=None):
            raise PermissionError("of the test")

        q = kind(InMemoryStorage())
        monkeypatch.setattr(InMemoryStorage, "write", refuse)
        with pytest.raises(PermissionError, match="of the test"):
            await enqueue(q)
        if isinstance(q, GroupCommitLoop):
            await q.stop()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [BrokerQueue, DirectQueue])
def test_write_replaced_while_the_queue_is_used_is_called(kind):
    async def main():
        storage = InMemoryStorage()
        q = kind(storage)
        if kind is BrokerQueue:
            await q.start()
        first = await q.enqueue("t", b"1")
        storage.write, calls = conflicting(storage, 1)
        second = await q.enqueue("t", b"2")
        assert len(calls) == 2
        del storage.write
        third = await q.enqueue("t", b"3")
        if kind is BrokerQueue:
            await q.stop()
        assert [job.id for job in (await q.read_state()).queued_jobs()] == [first.id, second.id, third.id]

    asyncio.run(main())


def test_read_that_was_replaced_is_called():
    async def main():
        storage = InMemoryStorage()

        async def read():
            return b'{"version": 41, "jobs": []}', "etag"

        storage.read = read
        assert (await DirectQueue(storage).read_state()).version == 41
        assert (await BrokerQueue(storage).read_state()).version == 41

    asyncio.run(main())


def test_subclass_that_replaces_neither_keeps_its_journal():
    async def main():
        storage = Renamed()
        async with BrokerQueue(storage) as q:
            await q.enqueue("t", b"")
        assert storage.uses_journal
        assert storage.is_keyed
        assert len(storage.store().look().entries) == 1

    asyncio.run(main())


@pytest.mark.parametrize("max_retries", [0, 2])
def test_direct_queue_retries_as_often_as_it_is_told(max_retries):
    async def main():
        storage = InMemoryStorage()
        storage.write, calls = conflicting(storage, 100)
        with pytest.raises(CASConflictError, match="simulated"):
            await DirectQueue(storage, max_retries=max_retries).enqueue("t", b"")
        assert len(calls) == max_retries + 1

    asyncio.run(main())
