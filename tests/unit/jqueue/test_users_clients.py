"""S3 and Google Cloud Storage through the user's own session or client: one blob in the wire format."""

import asyncio

import pytest

from ami.jqueue import BrokerQueue, CASConflictError, DirectQueue, GCSStorage, S3Storage, StorageError
from ami.jqueue.adapters.storage.moved import mark_of
from ami.jqueue.core.codec import decode
from tests.support.transports.cloud_clients import Client, Session

PLACE = ("my-bucket", "queues/jobs.json")


def s3(session):
    return S3Storage(bucket=PLACE[0], key=PLACE[1], session=session)


def gcs(client):
    return GCSStorage(bucket_name=PLACE[0], blob_name=PLACE[1], client=client)


KINDS = [(s3, Session), (gcs, Client)]


@pytest.mark.parametrize(("make", "client"), KINDS)
def test_a_whole_life(make, client):
    async def main():
        made = client()
        async with BrokerQueue(make(made)) as q:
            await asyncio.gather(*(q.enqueue("t", b"%d" % number) for number in range(5)))
            assert len(decode(made.objects[PLACE][0]).jobs) == 5
            for job in await q.dequeue("t", batch_size=5):
                await q.ack(job.id)
            await DirectQueue(make(made)).enqueue("t", b"last")
            assert [job.payload for job in (await q.read_state()).jobs] == [b"last"]

    asyncio.run(main())


@pytest.mark.parametrize(("make", "client"), KINDS)
def test_the_first_write_is_create_only(make, client):
    async def main():
        made = client()
        one, other = make(made), make(made)
        assert await one.read() == await other.read() == (b"", None)
        etag = await one.write(b"one", if_match=None)
        with pytest.raises(CASConflictError):
            await other.write(b"other", if_match=None)
        assert await other.read() == (b"one", etag)

    asyncio.run(main())


@pytest.mark.parametrize(("make", "client"), KINDS)
def test_two_first_writers_lose_nothing(make, client):
    async def main():
        made = client()
        await asyncio.gather(*(DirectQueue(make(made)).enqueue("t", b"%d" % number) for number in range(5)))
        assert len(decode(made.objects[PLACE][0]).jobs) == 5

    asyncio.run(main())


@pytest.mark.parametrize(("make", "client"), KINDS)
def test_a_stale_etag_conflicts(make, client):
    async def main():
        storage = make(client())
        stale = await storage.write(b"1")
        fresh = await storage.write(b"2", if_match=stale)
        with pytest.raises(CASConflictError):
            await storage.write(b"3", if_match=stale)
        assert await storage.read() == (b"2", fresh)

    asyncio.run(main())


@pytest.mark.parametrize(("make", "client", "denies"), [(s3, Session, "AccessDenied"), (gcs, Client, 403)])
def test_other_errors_are_storage_errors_with_their_cause(make, client, denies):
    async def main():
        storage = make(client(denies=denies))
        with pytest.raises(StorageError, match=r"my-bucket/queues/jobs\.json could not be read: .*") as read:
            await storage.read()
        with pytest.raises(StorageError, match=r"my-bucket/queues/jobs\.json could not be written: .*") as write:
            await storage.write(b"", "1")
        assert str(denies) in str(read.value.cause)
        assert str(denies) in str(write.value.cause)

    asyncio.run(main())


def test_a_missing_bucket_is_no_empty_queue():
    async def main():
        with pytest.raises(StorageError, match="NoSuchBucket"):
            await s3(Session(denies="NoSuchBucket")).read()

    asyncio.run(main())


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "409", "412"])
def test_every_refusal_of_s3_is_a_conflict(code):
    async def main():
        with pytest.raises(CASConflictError):
            await s3(Session(denies=code)).write(b"", "1")

    asyncio.run(main())


def test_a_blob_deleted_meanwhile_is_a_conflict():
    async def main():
        with pytest.raises(CASConflictError):
            await s3(Session()).write(b"", if_match='"1"')
        with pytest.raises(CASConflictError):
            await gcs(Client()).write(b"", if_match="1")

    asyncio.run(main())


def test_the_connection_is_passed_on():
    async def main():
        session = Session()
        place = {"bucket": "b", "key": "k", "session": session}
        await S3Storage(**place, region_name="eu-central-1", endpoint_url="http://minio.internal:9000").read()
        await S3Storage(**place).read()
        assert session.connections == [
            {"region_name": "eu-central-1", "endpoint_url": "http://minio.internal:9000"},
            {},
        ]

    asyncio.run(main())


@pytest.mark.parametrize("call", ["read", "write"])
def test_etag_is_never_that_of_another_writers_content(call):
    """Another writer is faster than whatever follows the request."""

    async def main():
        client = Client()
        storage = gcs(client)
        first = await storage.write(b"before")
        client.afterwards = lambda: client.objects.update({PLACE: (b"of another", 7)})
        etag = await storage.write(b"mine", first) if call == "write" else (await storage.read())[1]
        client.afterwards = lambda: None
        with pytest.raises(CASConflictError):
            await storage.write(b"lost", if_match=etag)
        assert await storage.read() == (b"of another", "7")

    asyncio.run(main())


@pytest.mark.parametrize(("make", "client"), KINDS)
def test_blob_that_was_imported_into_a_journal_is_an_error(make, client):
    made = client()
    made.objects[PLACE] = (mark_of("queues/jobs.json/"), 1)
    with pytest.raises(StorageError, match="was imported into queues/jobs.json/: open that instead"):
        asyncio.run(DirectQueue(make(made)).enqueue("t", b""))
    assert made.objects[PLACE] == (mark_of("queues/jobs.json/"), 1)
