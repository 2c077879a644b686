"""Storages that keep a journal: where they put it, and how processes and forks share it."""

import asyncio
import gc
import multiprocessing
import os
from unittest.mock import ANY

import pytest

from ami.jqueue import (
    BrokerQueue,
    CASConflictError,
    DirectQueue,
    GCSStorage,
    InMemoryStorage,
    LocalFileSystemStorage,
    S3Storage,
    StorageError,
)
from ami.jqueue.core.codec import decode, encode
from ami.jqueue.domain.models import Job, QueueState
from ami.transports.objectstore.storage.cloud import CloudObjects
from ami.transports.objectstore.storage.memory import MemoryObjects
from tests.support.transports.blob_storages import until


class Buckets:
    """Stands for both services: one bucket in memory for whatever is asked of them."""

    def __init__(self):
        self.objects = MemoryObjects()
        self.asked = []

    def s3(self, bucket, prefix="", **settings):
        self.asked.append(("s3", bucket, prefix, settings))
        return self.objects

    def gcs(self, bucket, prefix="", **settings):
        self.asked.append(("gs", bucket, prefix, settings))
        return self.objects


@pytest.fixture
def buckets(monkeypatch):
    made = Buckets()
    monkeypatch.setattr(CloudObjects, "s3", made.s3)
    monkeypatch.setattr(CloudObjects, "gcs", made.gcs)
    return made


MAKERS = [
    lambda **settings: S3Storage(bucket="b", key="queues/jobs.json", **settings),
    lambda **settings: GCSStorage(bucket_name="b", blob_name="queues/jobs.json", **settings),
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_bucket_keeps_a_journal_below_the_key(buckets, make):
    async def main():
        async with BrokerQueue(make(journal=True)) as q:
            await asyncio.gather(*(q.enqueue("t", b"%d" % number) for number in range(5)))
            [job] = await DirectQueue(make(journal=True)).dequeue("t")
            await q.ack(job.id)
            assert len((await q.read_state()).jobs) == 4

    asyncio.run(main())
    keys = buckets.objects.list("")
    assert keys
    assert all(key.startswith("queues/jobs.json/") for key in keys)


@pytest.mark.parametrize("make", MAKERS)
def test_bucket_without_journal_is_one_blob_at_the_key(buckets, make):
    async def main():
        async with BrokerQueue(make()) as q:
            await asyncio.gather(*(q.enqueue("t", b"%d" % number) for number in range(5)))
            [job] = await DirectQueue(make()).dequeue("t")
            await q.ack(job.id)
        assert await make().read() == (buckets.objects.read("queues/jobs.json").content, ANY)
        with pytest.raises(CASConflictError):
            await make().write(b"", None)

    asyncio.run(main())
    assert buckets.objects.list("") == ["queues/jobs.json"]
    assert len(decode(buckets.objects.read("queues/jobs.json").content).jobs) == 4


@pytest.mark.parametrize("make", MAKERS)
def test_blob_and_journal_are_never_both_a_queue(buckets, make):
    asyncio.run(DirectQueue(make(journal=True)).enqueue("t", b""))
    with pytest.raises(StorageError, match="open it with journal=True"):
        asyncio.run(DirectQueue(make()).enqueue("t", b""))
    buckets.objects.create("queues/jobs.json", encode(QueueState(jobs=(Job.new("t", b""),), version=1)))
    with pytest.raises(StorageError, match="is a queue in one blob: .* import it"):
        asyncio.run(DirectQueue(make(journal=True)).enqueue("t", b""))


@pytest.mark.parametrize("make", MAKERS)
def test_imported_blob_is_an_error_and_its_journal_the_queue(buckets, make):
    queued = QueueState(jobs=(Job.new("t", b"x"),), version=1)
    with pytest.raises(ValueError, match="there is no object 'queues/jobs.json'"):
        make(journal=True).import_blob()
    buckets.objects.create("queues/jobs.json", encode(queued))
    assert make(journal=True).import_blob() == 1
    assert make(journal=True).import_blob() is None
    assert asyncio.run(DirectQueue(make(journal=True)).dequeue())[0].id == queued.jobs[0].id
    with pytest.raises(StorageError, match="was imported into queues/jobs.json/: open that instead"):
        asyncio.run(DirectQueue(make()).dequeue())


def test_key_that_would_be_spelled_otherwise_is_refused(buckets):
    with pytest.raises(StorageError, match="pass a client of your own"):
        asyncio.run(S3Storage("b", "my queue.json").read())
    with pytest.raises(ValueError, match="a journal uses no client of your own"):
        S3Storage("b", "k", session=object(), journal=True)


def test_the_connection_is_passed_on(buckets):
    place = {"region_name": "eu-central-1", "endpoint_url": "http://minio.internal:9000"}
    for storage in (S3Storage("b", "k", **place), S3Storage("b", "k"), GCSStorage("b", "k")):
        assert asyncio.run(storage.read()) == (b"", None)
    assert buckets.asked == [
        ("s3", "b", "", {"region": "eu-central-1", "endpoint": "http://minio.internal:9000"}),
        ("s3", "b", "", {"region": None, "endpoint": None}),
        ("gs", "b", "", {}),
    ]


def test_separate_keys_are_separate_queues(buckets):
    async def main():
        await DirectQueue(S3Storage(bucket="b", key="queues/email.json")).enqueue("t", b"")
        assert await DirectQueue(S3Storage(bucket="b", key="queues/sms.json")).dequeue() == []

    asyncio.run(main())


def _enqueue_many(q, count):
    async def main():
        for _ in range(count):
            await q.enqueue("t", b"")

    asyncio.run(main())


@pytest.mark.processes
def test_a_fork_shares_the_folder(tmp_path):
    q = DirectQueue(LocalFileSystemStorage(tmp_path / "q", journal=True))
    _enqueue_many(q, 1)
    child = multiprocessing.get_context("fork").Process(target=_enqueue_many, args=(q, 100))
    child.start()
    _enqueue_many(q, 100)
    child.join(60)
    assert child.exitcode == 0
    assert len(asyncio.run(q.read_state()).jobs) == 201


@pytest.mark.processes
def test_a_fork_goes_on_with_its_own_memory():
    q = DirectQueue(InMemoryStorage())
    _enqueue_many(q, 3)
    child = multiprocessing.get_context("fork").Process(target=_dequeue_three, args=(q,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert len(asyncio.run(q.dequeue(batch_size=9))) == 3


def _dequeue_three(q):
    assert len(asyncio.run(q.dequeue(batch_size=9))) == 3


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    q = DirectQueue(LocalFileSystemStorage("q", journal=True))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    _enqueue_many(q, 1)
    assert (tmp_path / "q").is_dir()


def test_a_storage_that_is_dropped_closes_its_files(tmp_path):
    def open_files():
        return [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]

    _enqueue_many(DirectQueue(LocalFileSystemStorage(tmp_path / "q", journal=True)), 1)

    async def closed():
        # The queue's thread holds its last call for a moment after its answer.
        gc.collect()
        return not [path for path in open_files() if path.startswith(str(tmp_path))]

    asyncio.run(until(closed))


def _is_open(fd):
    return os.path.exists(f"/proc/self/fd/{fd}")


def test_a_payload_that_cannot_be_read_fails_its_claim_alone(tmp_path, monkeypatch):
    async def main():
        storage = LocalFileSystemStorage(tmp_path / "q", journal=True)
        store = storage.store()
        payload = store.payload

        def damaged(entry):
            if entry.entrypoint == "damaged":
                raise StorageError("torn")
            return payload(entry)

        async with BrokerQueue(storage) as q:
            await q.enqueue("damaged", b"1")
            await q.enqueue("whole", b"2")
            monkeypatch.setattr(store, "payload", damaged)
            failed, claimed, enqueued = await asyncio.gather(
                q.dequeue("damaged"), q.dequeue("whole"), q.enqueue("whole", b"3"), return_exceptions=True
            )
            assert isinstance(failed, StorageError)
            assert [job.payload for job in claimed] == [b"2"]
            assert [job.id for job in await q.dequeue()] == [enqueued.id]
            assert await q.dequeue() == []

    asyncio.run(main())


def test_a_restart_finds_everything(tmp_path):
    async def before():
        async with BrokerQueue(LocalFileSystemStorage(tmp_path / "q", journal=True)) as q:
            jobs = [await q.enqueue("t", b"%d" % number, priority=-number) for number in range(3)]
            [claimed] = await q.dequeue()
            return jobs, claimed

    async def after():
        return await DirectQueue(LocalFileSystemStorage(tmp_path / "q", journal=True)).read_state()

    jobs, claimed = asyncio.run(before())
    state = asyncio.run(after())
    assert [job.id for job in state.jobs] == [job.id for job in jobs]
    assert [job.id for job in state.in_progress_jobs()] == [claimed.id] == [jobs[2].id]
    assert state.find(claimed.id).heartbeat_at == claimed.heartbeat_at
    assert [job.payload for job in state.queued_jobs()] == [b"1", b"0"]
