"""Every call that the library's documents show, as they show it."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest

from ami.jqueue import (
    BrokerQueue,
    CASConflictError,
    DirectQueue,
    HeartbeatManager,
    InMemoryStorage,
    Job,
    JobNotFoundError,
    JobStatus,
    JQueueError,
    LocalFileSystemStorage,
    ObjectStoragePort,
    QueueState,
    StorageError,
)
from ami.jqueue.adapters.storage.gcs import GCSStorage
from ami.jqueue.adapters.storage.s3 import S3Storage
from tests.support.transports.blob_storages import OneBlob


def test_quick_start(storage):
    async def main():
        sent = []
        async with BrokerQueue(storage) as q:
            await q.enqueue("send_email", b'{"to": "alice@example.com"}')
            await q.enqueue("send_email", b'{"to": "bob@example.com"}')
            jobs = await q.dequeue("send_email", batch_size=2)
            for job in jobs:
                async with HeartbeatManager(q, job.id):
                    sent.append(job.payload)
                await q.ack(job.id)
            state = await q.read_state()
        assert sent == [b'{"to": "alice@example.com"}', b'{"to": "bob@example.com"}']
        assert len(state.jobs) == 0

    asyncio.run(main())


def test_direct_quick_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def main():
        q = DirectQueue(LocalFileSystemStorage("queue.json"))
        job = await q.enqueue("task", b"data")
        [claimed] = await q.dequeue("task")
        assert claimed.id == job.id
        await q.ack(claimed.id)
        assert await q.dequeue("task") == []

    asyncio.run(main())


def test_a_job_has_all_its_fields(queue):
    async def main():
        async with queue as q:
            before = datetime.now(UTC)
            enqueued = await q.enqueue("resize_image", payload=b"\x00\xff pixels", priority=7)
            assert isinstance(enqueued, Job)
            assert (enqueued.entrypoint, enqueued.payload, enqueued.priority) == ("resize_image", b"\x00\xff pixels", 7)
            assert (enqueued.status, enqueued.heartbeat_at) == (JobStatus.QUEUED, None)
            [claimed] = await q.dequeue("resize_image", batch_size=5)
            after = datetime.now(UTC)
            assert (claimed.id, claimed.payload, claimed.priority) == (enqueued.id, enqueued.payload, 7)
            assert claimed.status is JobStatus.IN_PROGRESS
            # A journal keeps its moments as floats: exact to the microsecond, give or take one.
            one = timedelta(microseconds=1)
            assert before - one <= claimed.created_at <= claimed.heartbeat_at <= after + one
            assert claimed.created_at.utcoffset() == timedelta(0)

    asyncio.run(main())


def test_lower_priority_values_first_then_by_arrival(queue):
    async def main():
        async with queue as q:
            for priority, payload in ((10, b"late"), (0, b"first"), (0, b"second"), (-5, b"urgent")):
                await q.enqueue("report", payload, priority=priority)
            order = [job.payload for job in (await q.read_state()).queued_jobs("report")]
            assert order == [b"urgent", b"first", b"second", b"late"]
            assert [(await q.dequeue("report"))[0].payload for _ in range(4)] == order

    asyncio.run(main())


def test_entrypoint_none_is_any(queue):
    async def main():
        async with queue as q:
            await q.enqueue("a", b"1")
            await q.enqueue("b", b"2")
            assert [job.payload for job in await q.dequeue("b")] == [b"2"]
            assert [job.payload for job in await q.dequeue(batch_size=10)] == [b"1"]
            assert await q.dequeue() == []

    asyncio.run(main())


def test_nack_gives_it_back_to_its_place(queue):
    async def main():
        async with queue as q:
            await q.enqueue("t", b"1")
            await q.enqueue("t", b"2")
            [first] = await q.dequeue("t")
            await q.nack(first.id)
            state = await q.read_state()
            assert state.find(first.id).status is JobStatus.QUEUED
            assert state.find(first.id).heartbeat_at is None
            assert [job.payload for job in await q.dequeue("t", batch_size=2)] == [b"1", b"2"]

    asyncio.run(main())


def test_what_is_gone_is_not_found(queue):
    async def main():
        async with queue as q:
            job = await q.enqueue("t", b"")
            await q.ack(job.id)
            for call in (q.ack, q.nack, q.heartbeat):
                with pytest.raises(JobNotFoundError) as caught:
                    await call(job.id)
                assert caught.value.job_id == job.id

    asyncio.run(main())


def test_heartbeat_refreshes(queue):
    async def main():
        async with queue as q:
            await q.enqueue("t", b"")
            [job] = await q.dequeue("t")
            await q.heartbeat(job.id)
            refreshed = (await q.read_state()).find(job.id)
            assert refreshed.heartbeat_at > job.heartbeat_at
            assert refreshed.status is JobStatus.IN_PROGRESS

    asyncio.run(main())


def test_what_waits_takes_no_heartbeat(queue):
    async def main():
        async with queue as q:
            job = await q.enqueue("t", b"")
            await q.heartbeat(job.id)
            await q.nack(job.id)
            found = (await q.read_state()).find(job.id)
            assert (found.status, found.heartbeat_at) == (JobStatus.QUEUED, None)

    asyncio.run(main())


def test_metrics_of_a_state(queue):
    async def collect_metrics(q):
        state = await q.read_state()
        now = datetime.now(UTC)
        queued = state.queued_jobs()
        return {
            "queue_depth": len(queued),
            "in_progress": len(state.in_progress_jobs()),
            "version": state.version,
            "oldest_queued_age_s": (now - min(j.created_at for j in queued)).total_seconds() if queued else 0,
        }

    async def main():
        async with queue as q:
            assert await collect_metrics(q) == {
                "queue_depth": 0,
                "in_progress": 0,
                "version": 0,
                "oldest_queued_age_s": 0,
            }
            for _ in range(3):
                await q.enqueue("t", b"")
            await q.dequeue("t")
            metrics = await collect_metrics(q)
            assert (metrics["queue_depth"], metrics["in_progress"]) == (2, 1)
            assert 0 <= metrics["oldest_queued_age_s"] < 60
            assert metrics["version"] > 0
            await q.enqueue("t", b"")
            assert (await collect_metrics(q))["version"] > metrics["version"]

    asyncio.run(main())


def test_concurrent_enqueues(storage):
    async def main():
        async with BrokerQueue(storage) as q:
            jobs = await asyncio.gather(q.enqueue("task", b"1"), q.enqueue("task", b"2"), q.enqueue("task", b"3"))
            assert [job.payload for job in await q.dequeue("task", batch_size=3)] == [b"1", b"2", b"3"]
            assert len({job.id for job in jobs}) == 3

    asyncio.run(main())


def test_requeue_stale_counts(storage):
    async def main():
        q = DirectQueue(storage)
        for payload in (b"1", b"2", b"3"):
            await q.enqueue("t", payload)
        claimed = await q.dequeue("t", batch_size=2)
        assert await q.requeue_stale(timeout=timedelta(minutes=5)) == 0
        assert await q.requeue_stale(timeout=timedelta(0)) == 2
        assert await q.requeue_stale(timedelta(0)) == 0
        assert {job.id for job in await q.dequeue("t", batch_size=2)} == {job.id for job in claimed}

    asyncio.run(main())


def test_two_queues_share_a_storage(storage):
    async def main():
        async with BrokerQueue(storage) as producer, BrokerQueue(storage) as worker:
            job = await producer.enqueue("t", b"x")
            [claimed] = await worker.dequeue("t")
            assert claimed.id == job.id
            await DirectQueue(storage).ack(job.id)
            assert (await producer.read_state()).jobs == ()

    asyncio.run(main())


def test_initial_content():
    async def main():
        async with BrokerQueue(InMemoryStorage(initial_content=b'{"version":0,"jobs":[]}')) as q:
            assert await q.dequeue() == []
            await q.enqueue("t", b"")
            assert len(await q.dequeue()) == 1

    asyncio.run(main())


def test_constructors_touch_nothing(tmp_path):
    LocalFileSystemStorage(str(tmp_path / "a" / "queue.json"))
    assert not (tmp_path / "a").exists()
    for storage in (
        S3Storage(bucket="my-bucket", key="queues/jobs.json"),
        S3Storage(bucket="my-bucket", key="jobs.json", region_name="eu-central-1"),
        S3Storage(bucket="b", key="queue.json", endpoint_url="http://minio.internal:9000", region_name="us-east-1"),
        S3Storage(bucket="my-bucket", key="jobs.json", session=object()),
        GCSStorage(bucket_name="my-bucket", blob_name="queues/jobs.json"),
        GCSStorage(bucket_name="my-bucket", blob_name="jobs.json", client=object()),
    ):
        BrokerQueue(storage)
        DirectQueue(storage)


def test_parents_are_made(tmp_path):
    async def main():
        await DirectQueue(LocalFileSystemStorage(tmp_path / "a" / "b" / "queue.json")).enqueue("t", b"")

    asyncio.run(main())
    assert (tmp_path / "a" / "b" / "queue.json").is_file()


def test_any_object_with_the_two_coroutines_is_a_storage():
    assert isinstance(OneBlob(), ObjectStoragePort)
    assert isinstance(InMemoryStorage(), ObjectStoragePort)
    assert not isinstance(object(), ObjectStoragePort)
    with pytest.raises(TypeError, match=r"object is not a storage: it lacks the coroutines read\(\) and write\(\)"):
        BrokerQueue(object())


def test_errors_have_one_base():
    assert issubclass(CASConflictError, JQueueError)
    assert issubclass(StorageError, JQueueError)
    assert StorageError("x", cause := OSError()).cause is cause
    assert JobNotFoundError("1").job_id == "1"


def test_values_cannot_be_changed():
    job = Job(id="1", entrypoint="t", payload=b"")
    with pytest.raises(ValueError, match="frozen"):
        job.status = JobStatus.DEAD
    with pytest.raises(ValueError, match="frozen"):
        QueueState().version = 1


@pytest.mark.parametrize(
    ("module", "names"),
    {
        "domain.models": ("Job", "JobStatus", "QueueState"),
        "domain.errors": ("CASConflictError", "JQueueError", "JobNotFoundError", "StorageError"),
        "ports.storage": ("ObjectStoragePort",),
        "core.codec": ("decode", "encode"),
        "core.direct": ("DirectQueue",),
        "core.group_commit": ("GroupCommitLoop",),
        "core.broker": ("BrokerQueue",),
        "core.heartbeat": ("HeartbeatManager",),
        "adapters.storage.memory": ("InMemoryStorage",),
        "adapters.storage.filesystem": ("LocalFileSystemStorage",),
        "adapters.storage.s3": ("S3Storage",),
        "adapters.storage.gcs": ("GCSStorage",),
    }.items(),
)
def test_modules_and_names_are_those_of_jqueue(module: str, names: tuple[str, ...]):
    found = import_module(f"ami.jqueue.{module}")
    assert all(hasattr(found, name) for name in names)


@pytest.mark.processes
def test_importing_brings_in_no_client_and_no_framework():
    code = "import sys, ami.jqueue as o; [getattr(o, n) for n in o.__all__]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    unwanted = {"obstore", "boto3", "botocore", "aioboto3", "google.cloud.storage", "django", "celery"}
    assert not unwanted & set(loaded)
