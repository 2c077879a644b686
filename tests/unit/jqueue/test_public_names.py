"""The names, arguments and attributes that a program of the seed's library may use."""

import asyncio
import tomllib
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

import ami.jqueue
from ami.jqueue import (
    BrokerQueue,
    DirectQueue,
    GCSStorage,
    GroupCommitLoop,
    HeartbeatManager,
    InMemoryStorage,
    JobStatus,
    LocalFileSystemStorage,
    S3Storage,
    StorageError,
)
from tests.support.place import ROOT

STORAGE = InMemoryStorage()
SESSION = object()
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("made", "attributes"),
    [
        (DirectQueue(STORAGE), {"storage": STORAGE, "max_retries": 10}),
        (DirectQueue(storage=STORAGE, max_retries=3), {"max_retries": 3}),
        (BrokerQueue(STORAGE), {"storage": STORAGE, "stale_timeout": timedelta(minutes=5)}),
        (BrokerQueue(storage=STORAGE, stale_timeout=MINUTE), {"stale_timeout": MINUTE}),
        (GroupCommitLoop(storage=STORAGE, stale_timeout=MINUTE), {"storage": STORAGE, "stale_timeout": MINUTE}),
        (HeartbeatManager(queue=STORAGE, job_id="1"), {"queue": STORAGE, "job_id": "1", "interval": MINUTE}),
        (HeartbeatManager(STORAGE, "1", interval=2 * MINUTE), {"interval": 2 * MINUTE}),
        (InMemoryStorage(), {"initial_content": b""}),
        (InMemoryStorage(initial_content=b"x"), {"initial_content": b"x"}),
        (LocalFileSystemStorage("queue.json"), {"path": Path("queue.json")}),
        (LocalFileSystemStorage(path=Path("/q")), {"path": Path("/q")}),
        (
            S3Storage("b", "k", SESSION, "region", "http://minio:9000"),
            {
                "bucket": "b",
                "key": "k",
                "session": SESSION,
                "region_name": "region",
                "endpoint_url": "http://minio:9000",
            },
        ),
        (S3Storage(bucket="b", key="k"), {"session": None, "region_name": None, "endpoint_url": None}),
        (GCSStorage("b", "k", SESSION), {"bucket_name": "b", "blob_name": "k", "client": SESSION}),
        (GCSStorage(bucket_name="b", blob_name="k"), {"client": None}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_arguments_are_attributes(made, attributes):
    assert {name: getattr(made, name) for name in attributes} == attributes


def test_attributes_may_be_set():
    async def main():
        q = DirectQueue(InMemoryStorage())
        await q.enqueue("t", b"")
        q.storage = InMemoryStorage()
        assert (await q.read_state()).jobs == ()

    asyncio.run(main())


def test_every_name_of_the_package_is_there():
    for name in ami.jqueue.__all__:
        assert getattr(ami.jqueue, name) is not None
    assert set(ami.jqueue.__all__) <= set(dir(ami.jqueue))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = ami.jqueue.nothing


def test_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert ami.jqueue.__version__ == project["version"]


def test_storage_error_shows_its_cause_once():
    cause = RuntimeError("disk full")
    assert str(StorageError("write failed", cause)) == "write failed: disk full"
    assert str(StorageError("write failed: disk full", cause)) == "write failed: disk full"
    assert str(StorageError("torn")) == str(StorageError("torn", TimeoutError())) == "torn"
    assert StorageError("write failed", cause).cause is cause


def test_storage_error_quotes_no_payload():
    decode = import_module("ami.jqueue.core.codec").decode
    with pytest.raises(StorageError, match="this is not a queue in JSON: jobs.0.entrypoint: Field required") as caught:
        decode(b'{"jobs": [{"payload": "c2VjcmV0"}]}')
    assert "c2VjcmV0" not in f"{caught.value} {caught.value.cause!r}"


def test_loop_started_twice_is_a_runtime_error():
    async def main():
        loop = GroupCommitLoop(InMemoryStorage())
        await loop.start()
        with pytest.raises(RuntimeError, match="this GroupCommitLoop runs already"):
            await loop.start()
        await loop.enqueue("t", b"")
        await loop.stop()

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [0, -1])
def test_timeout_of_nothing_makes_every_claim_stale(storage, seconds):
    async def main():
        async with BrokerQueue(storage, stale_timeout=timedelta(seconds=seconds)) as q:
            job = await q.enqueue("t", b"")
            await q.dequeue()
            await q.enqueue("other", b"")
            assert (await q.read_state()).find(job.id).status is JobStatus.QUEUED
            await DirectQueue(storage).dequeue("t")
            assert await DirectQueue(storage).requeue_stale(timedelta(seconds=seconds)) == 1

    asyncio.run(main())
