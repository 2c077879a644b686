"""Storages that keep a journal: where they put it, and how processes and forks share it."""

import asyncio
import gc
import multiprocessing
import os

import pytest

from ami.jqueue import (
    BrokerQueue,
    DirectQueue,
    GCSStorage,
    InMemoryStorage,
    LocalFileSystemStorage,
    S3Storage,
    StorageError,
)
from ami.jqueue.core.codec import encode
from ami.jqueue.domain.models import Job, QueueState
from ami.transports.objectstore.storage.cloud import CloudObjects
from ami.transports.objectstore.storage.memory import MemoryObjects


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
    lambda: S3Storage(bucket="b", key="queues/jobs.json"),
    lambda: GCSStorage(bucket_name="b", blob_name="queues/jobs.json"),
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_bucket_keeps_a_journal_below_the_key(buckets, make):
    async def main():
        async with BrokerQueue(make()) as q:
            await asyncio.gather(*(q.enqueue("t", b"%d" % number) for number in range(5)))
            [job] = await DirectQueue(make()).dequeue("t")
            await q.ack(job.id)
            assert len((await q.read_state()).jobs) == 4

    asyncio.run(main())
    keys = buckets.objects.list("")
    assert keys
    assert all(key.startswith("queues/jobs.json/") for key in keys)


@pytest.mark.parametrize("make", MAKERS)
def test_a_blob_at_the_key_comes_along(buckets, make):
    job = Job(id="1", entrypoint="t", payload=b"x")
    buckets.objects.create("queues/jobs.json", encode(QueueState(jobs=(job,), version=1)))

    async def main():
        assert [found.id for found in await DirectQueue(make()).dequeue()] == ["1"]
        assert await DirectQueue(make()).dequeue() == []

    asyncio.run(main())


def test_the_connection_is_passed_on(buckets):
    S3Storage("b", "k", region_name="eu-central-1", endpoint_url="http://minio.internal:9000").store()
    S3Storage("b", "k").store()
    GCSStorage("b", "k").store()
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
    q = DirectQueue(LocalFileSystemStorage(tmp_path / "q"))
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
    q = DirectQueue(LocalFileSystemStorage("q"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    _enqueue_many(q, 1)
    assert (tmp_path / "q").is_dir()


def test_a_storage_that_is_dropped_closes_its_files(tmp_path):
    def open_files():
        return [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]

    _enqueue_many(DirectQueue(LocalFileSystemStorage(tmp_path / "q")), 1)
    gc.collect()
    assert [path for path in open_files() if path.startswith(str(tmp_path))] == []


def _is_open(fd):
    return os.path.exists(f"/proc/self/fd/{fd}")


def test_a_payload_that_cannot_be_read_fails_its_claim_alone(tmp_path, monkeypatch):
    async def main():
        storage = LocalFileSystemStorage(tmp_path / "q")
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
        async with BrokerQueue(LocalFileSystemStorage(tmp_path / "q")) as q:
            jobs = [await q.enqueue("t", b"%d" % number, priority=-number) for number in range(3)]
            [claimed] = await q.dequeue()
            return jobs, claimed

    async def after():
        return await DirectQueue(LocalFileSystemStorage(tmp_path / "q")).read_state()

    jobs, claimed = asyncio.run(before())
    state = asyncio.run(after())
    assert [job.id for job in state.jobs] == [job.id for job in jobs]
    assert [job.id for job in state.in_progress_jobs()] == [claimed.id] == [jobs[2].id]
    assert state.find(claimed.id).heartbeat_at == claimed.heartbeat_at
    assert [job.payload for job in state.queued_jobs()] == [b"1", b"0"]
