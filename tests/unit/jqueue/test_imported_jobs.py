"""Queues that were one JSON document before: their jobs come along, once, and the document is kept."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from ami.jqueue import (
    BrokerQueue,
    CASConflictError,
    DirectQueue,
    InMemoryStorage,
    Job,
    JobStatus,
    JQueueError,
    LocalFileSystemStorage,
    QueueState,
    StorageError,
)
from ami.jqueue.adapters.storage.imported_jobs import import_blob
from ami.jqueue.adapters.storage.moved import moved_to
from ami.jqueue.core.codec import decode, encode
from ami.transports.objectstore.queue.commands import Enqueue
from ami.transports.objectstore.queue.factory import open_store
from ami.transports.objectstore.storage.memory import MemoryObjects

NOW = datetime.now(UTC)
#: Within the lease that an import gives what was in progress, however long after this module was read a test runs.
FRESH = NOW + timedelta(hours=12)


def job(number, status=JobStatus.QUEUED, heartbeat_at=None, priority=0):
    return Job(
        id=str(number),
        entrypoint="t",
        payload=b"payload %d" % number,
        status=status,
        priority=priority,
        created_at=NOW - timedelta(hours=1) + timedelta(seconds=number),
        heartbeat_at=heartbeat_at,
    )


STATE = QueueState(
    version=9,
    jobs=(
        job(1),
        job(2, JobStatus.IN_PROGRESS, FRESH),
        job(3, priority=-1),
        job(4, JobStatus.IN_PROGRESS, NOW - timedelta(hours=1)),
        job(5, JobStatus.DEAD),
    ),
)


async def holds_the_state(q):
    """Look at, then work off, what `STATE` holds."""
    state = await q.read_state()
    assert {found.id: found.status.value for found in state.jobs} == {
        "1": "queued",
        "2": "in_progress",
        "3": "queued",
        "4": "in_progress",
        "5": "dead",
    }
    assert {found.payload for found in state.jobs} == {found.payload for found in STATE.jobs}
    # Of those in progress, the one that gave no sign of life for an hour is delivered again.
    assert {found.id for found in await q.dequeue("t", batch_size=10)} == {"3", "4", "1"}
    for number in ("1", "2", "3", "4", "5"):
        await q.ack(number)
    assert (await q.read_state()).jobs == ()


def test_initial_content_with_jobs():
    async def main():
        async with BrokerQueue(InMemoryStorage(initial_content=encode(STATE))) as q:
            await holds_the_state(q)

    asyncio.run(main())


def test_initial_content_keeps_its_version_and_is_the_first_etag():
    async def main():
        storage = InMemoryStorage(initial_content=b'{"version":3,"jobs":[]}')
        assert await storage.read() == (b'{"version":3,"jobs":[]}', "0")
        q = DirectQueue(storage)
        assert (await q.read_state()).version == 3
        await q.enqueue("t", b"")
        assert (await q.read_state()).version == 4

    asyncio.run(main())


def test_initial_content_keeps_its_heartbeats():
    async def main():
        q = DirectQueue(InMemoryStorage(initial_content=encode(STATE)))
        assert (await q.read_state()).jobs == STATE.jobs
        assert await q.requeue_stale(timedelta(minutes=5)) == 1

    asyncio.run(main())


def test_initial_content_in_another_format():
    with pytest.raises(StorageError, match="not a queue in JSON"):
        asyncio.run(DirectQueue(InMemoryStorage(initial_content=b"?")).read_state())


def test_imported_blob_becomes_a_mark_and_its_content_is_kept():
    objects = MemoryObjects()
    objects.create("queues/jobs.json", encode(STATE))
    store = open_store(objects, "queues/jobs.json/")
    assert [import_blob(store, objects, "queues/jobs.json") for _ in range(2)] == [5, 0]
    assert len(store.look().entries) == 5
    assert moved_to(objects.read("queues/jobs.json").content) == "queues/jobs.json/"
    assert objects.read("queues/jobs.json.imported-9").content == encode(STATE)


def test_what_an_old_writer_adds_meanwhile_comes_along():
    class Racing(MemoryObjects):
        raced = False

        def replace(self, key, content, version):
            if key == "q" and not self.raced:
                self.raced = True
                super().replace(key, encode(STATE.with_job_added(job(6))), version)
            return super().replace(key, content, version)

    objects = Racing()
    objects.create("q", encode(STATE))
    store = open_store(objects, "q/")
    import_blob(store, objects, "q")
    assert set(store.look().entries) == {"1", "2", "3", "4", "5", "6"}
    assert moved_to(objects.read("q").content) == "q/"


def test_into_a_store_with_jobs_what_was_in_progress_waits():
    objects = MemoryObjects()
    objects.create("q", encode(STATE))
    store = open_store(objects, "q/")
    store.commit([Enqueue("0", b"")])
    import_blob(store, objects, "q")
    assert {entry.id for entry in store.look().entries.values() if entry.is_waiting} == {"0", "1", "2", "3", "4"}


def test_a_storage_in_memory_serves_storages_that_wrap_it():
    class Wrapping:
        """A storage of a user's that counts what it passes on."""

        def __init__(self, inner):
            self.inner = inner
            self.writes = 0

        async def read(self):
            return await self.inner.read()

        async def write(self, content, if_match=None):
            self.writes += 1
            return await self.inner.write(content, if_match)

    async def main():
        inner = InMemoryStorage()
        wrapped = Wrapping(inner)
        async with BrokerQueue(wrapped) as q:
            await asyncio.gather(*(q.enqueue("t", b"%d" % number) for number in range(3)))
            [first] = await q.dequeue()
            await q.ack(first.id)
        assert wrapped.writes == 3
        # The queue itself and the wrapping storage share the jobs.
        assert len(await DirectQueue(inner).dequeue(batch_size=9)) == 2
        await DirectQueue(wrapped).enqueue("t", b"")
        assert len(await DirectQueue(inner).dequeue(batch_size=9)) == 1

    asyncio.run(main())


def test_a_journal_is_read_in_the_wire_format(tmp_path):
    storage = LocalFileSystemStorage(tmp_path / "q", journal=True)

    async def main():
        q = DirectQueue(storage)
        made = await q.enqueue("t", b"x")
        content, etag = await storage.read()
        assert [found.id for found in decode(content).jobs] == [made.id]
        assert etag is not None
        with pytest.raises(JQueueError, match="keeps a journal: give it to a queue itself"):
            await storage.write(content, etag)

    asyncio.run(main())


def test_a_journal_without_anything_reads_as_nothing(tmp_path):
    assert asyncio.run(LocalFileSystemStorage(tmp_path / "q", journal=True).read()) == (b"", None)


def test_journal_in_memory_is_written_as_a_blob():
    async def main():
        storage = InMemoryStorage()
        async with BrokerQueue(storage) as q:
            first = await q.enqueue("t", b"1")
            content, etag = await storage.read()
            assert decode(content).jobs == (await q.read_state()).jobs
            await q.enqueue("t", b"2")
            with pytest.raises(CASConflictError):
                await storage.write(b"", etag)
            content, etag = await storage.read()
            await storage.write(encode(decode(content).with_job_removed(first.id)), etag)
            assert [job.payload for job in await q.dequeue(batch_size=9)] == [b"2"]
            await q.enqueue("t", b"3")
            assert (await q.read_state()).version == 5

    asyncio.run(main())


def test_emptied_blob_in_memory_repeats_no_etag():
    async def main():
        storage = InMemoryStorage()
        first = await storage.write(b"1", None)
        await storage.write(b"", first)
        assert await storage.read() == (b"", None)
        assert await storage.write(b"2", None) != first

    asyncio.run(main())
